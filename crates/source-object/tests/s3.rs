//! Objects of an S3 server with signatures.

mod common;

use common::bytes;
use dentree_blockdev::BlockDevice;
use dentree_source_object::{Options, open};
use dentree_testing::{Fault, Proxy, S3_KEYS as KEYS, Upstream, said, serve_s3};
use std::env;
use std::fs;
use std::process::Command;

/// Bucket with an object behind a proxy.
fn bucket(content: &[u8]) -> (tempfile::TempDir, Proxy) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("bucket")).unwrap();
    fs::write(dir.path().join("bucket/disk.img"), content).unwrap();
    let proxy = Proxy::start(Upstream::Tcp(serve_s3(dir.path())));
    (dir, proxy)
}

/// Content or error in a process with only these variables.
fn read_with(variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "the_process_that_reads", "--ignored", "--nocapture"]);
    command.env_clear().env("AWS_EC2_METADATA_DISABLED", "true").envs(variables.iter().copied());
    said(&command.output().unwrap())
}

#[test]
#[ignore = "a process of the other tests, with variables of its own"]
fn the_process_that_reads() {
    let options = Options { endpoint: env::var("TEST_ENDPOINT").ok(), ..Options::default() };
    let read = open("s3://bucket/disk.img", &options).map_err(|error| error.to_string());
    let read = read.and_then(|device| {
        let mut buf = vec![0; device.size() as usize];
        device.read_at(0, &mut buf).map_err(|error| error.to_string()).map(|()| buf)
    });
    println!("it read: {:?}", read.map(|bytes| blake3::hash(&bytes).to_string()));
}

#[test]
fn signed_requests_read_the_object() {
    let content = bytes(1_000_000, 0);
    let (_dir, proxy) = bucket(&content);
    let digest = blake3::hash(&content).to_string();
    for name in ["TEST_ENDPOINT", "AWS_ENDPOINT_URL"] {
        let said = read_with(&[KEYS[0], KEYS[1], (name, &proxy.url(""))]);
        assert!(said.contains(&digest), "{said}");
    }
    let asked = proxy.take();
    assert!(asked.iter().all(|exchange| exchange.request.contains("AWS4-HMAC-SHA256")), "{asked:?}");
}

#[test]
fn a_profile_of_the_command_line_has_the_keys() {
    let content = bytes(1_000_000, 0);
    let (dir, proxy) = bucket(&content);
    fs::create_dir(dir.path().join(".aws")).unwrap();
    let profile = "[mine]\naws_access_key_id = someone\naws_secret_access_key = secret\n";
    fs::write(dir.path().join(".aws/credentials"), profile).unwrap();
    let (home, endpoint) = (dir.path().to_str().unwrap(), proxy.url(""));
    let said = read_with(&[("HOME", home), ("AWS_PROFILE", "mine"), ("TEST_ENDPOINT", &endpoint)]);
    assert!(said.contains(&blake3::hash(&content).to_string()), "{said}");
}

#[test]
fn denied_access_names_the_credentials() {
    let (_dir, proxy) = bucket(&bytes(1000, 0));
    let endpoint = proxy.url("");
    let wrong = read_with(&[KEYS[0], ("AWS_SECRET_ACCESS_KEY", "wrong"), ("TEST_ENDPOINT", &endpoint)]);
    assert!(
        wrong.contains("403") && wrong.contains("credentials of $AWS_ACCESS_KEY_ID were used"),
        "{wrong}"
    );
    let none = read_with(&[("TEST_ENDPOINT", &endpoint)]);
    assert!(
        none.contains("403") && none.contains("no credentials were found in $AWS_ACCESS_KEY_ID,"),
        "{none}"
    );
}

#[test]
fn a_server_that_knows_no_conditions_mixes_nothing_either() {
    let (_dir, proxy) = bucket(&bytes(1_000_000, 0));
    let other = || Fault::Header("ETag", "\"other\"".into());
    proxy.next([Fault::Drop("none"), other(), other(), other()]);
    let said = read_with(&[KEYS[0], KEYS[1], ("TEST_ENDPOINT", &proxy.url(""))]);
    assert!(said.contains("the object changed while it was read: its ETag was"), "{said}");
}
