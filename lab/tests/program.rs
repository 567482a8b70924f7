//! `dentree-lab record`, `build`, `find` and `web`, and the servers that `web --sockets` compares.

use dentree_lab::programs::Programs;
use dentree_lab::workloads::web::sockets::{DENTREE, NGINX, Plan, compare};
use std::fs;
use std::process::{Command, Output};

fn lab(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dentree-lab")).args(args).output().unwrap()
}

/// One scheme, one client, a short time: the tests check that there are results, not their values.
const SHORT: [&str; 8] = ["--rounds", "1", "--slice", "5", "--clients", "1", "--scheme", "dentree"];

fn studied(args: &[&str]) -> String {
    let output = lab(&[args, &SHORT].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 global lock") && text.contains("12 dentree"), "{text}");
    text
}

#[test]
fn what_was_recorded_can_be_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cat.names");
    let out = file.to_str().unwrap();
    let recorded = lab(&["record", "--out", out, "--", "cat", "/etc/passwd", "/etc/no such file"]);
    let message = String::from_utf8_lossy(&recorded.stderr).into_owned();
    if message.contains("package strace") {
        println!("skipped: {message}");
        return;
    }
    assert_eq!(recorded.status.code(), Some(1), "cat's failure is reported: {message}");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("dentree names 1\n# cat\n") && text.contains(" no such file\n"), "{text}");
    studied(&["build", "--recording", out]);
    fs::write(&file, "dentree names 1\n0 a\n\ns7\n").unwrap();
    let refused = lab(&["build", "--recording", out]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("line 4 is not a recording's"));
}

#[test]
fn the_loads_can_be_studied() {
    assert!(studied(&["build"]).contains("build: thousand operations"));
    assert!(studied(&["web", "--connections", "2"]).contains("web: thousand operations"));
    assert!(
        studied(&["web", "--connections", "2", "--rate", "1000"]).contains("httperf: thousand operations")
    );
}

#[test]
fn more_cpus_than_there_are_cannot_be_asked_for() {
    assert!(studied(&["churn", "--cpus", "1"]).contains("churn-readers"));
    let refused = lab(&["churn", "--cpus", "60000"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("60000: this process may use "));
}

#[test]
fn runs_that_differ_end_with_another_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let run = |name: &str, ratio: [f64; 3]| {
        let file = dir.path().join(name);
        let [low, median, high] = ratio;
        let row = format!(
            r#"{{"case":"dbench","variant":"a/b","threads":1,"metric":"ratio","unit":"1","median":{median},"low":{low},"high":{high},"n":7}}"#
        );
        fs::write(&file, row + "\n").unwrap();
        file.to_str().unwrap().to_owned()
    };
    let (one, near, far) =
        (run("one", [0.9, 1.0, 1.1]), run("near", [1.0, 1.1, 1.2]), run("far", [1.9, 2.0, 2.1]));
    assert_eq!(lab(&["compare", &one, &near]).status.code(), Some(0));
    let apart = lab(&["compare", &one, &far]);
    assert_eq!(apart.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&apart.stdout).contains("apart: dbench, 1 threads, a/b: 1.00 "));
    assert_eq!(lab(&["compare", &one, "/none"]).status.code(), Some(1));
}

/// Regression: reading the clock under valgrind ended the program, and no cache miss was counted.
#[test]
fn cache_misses_of_each_layout_are_counted() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: valgrind is not installed");
        return;
    }
    let output = lab(&["layout", "--entries", "600", "--dhash-entries", "64", "--runs", "2"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && !text.contains("not measured"), "{text}");
    assert_eq!(text.matches("  misses ").count(), 3, "{text}");
}

#[test]
fn servers_are_compared_over_real_sockets() {
    // `cargo test --workspace` builds it before it runs a test.
    let dentree = match Programs::beside_this().and_then(|programs| programs.dentree()) {
        Ok(dentree) => dentree,
        Err(why) => {
            println!("skipped: {why}");
            return;
        }
    };
    let plan = Plan { dentree, connections: 2, rate: 100, rounds: 2, seconds: 1 };
    let compared = compare(&plan, &|_| {}).expect("mke2fs and dentree serve are there");
    compared.skipped.iter().for_each(|why| println!("skipped: {why}"));
    let has = |case: &str, variant: &str| {
        compared.rows.iter().any(|row| row.case == case && row.variant == variant && row.median > 0.0)
    };
    let is_skipped = |program: &str| compared.skipped.iter().any(|why| why.starts_with(program));
    for (generator, case) in [("wrk", "web-sockets-2-connections"), ("httperf", "web-sockets-100-requests/s")]
    {
        assert!(is_skipped(generator) || has(case, DENTREE), "{generator}: {compared:?}");
        assert!(
            is_skipped(generator) || is_skipped(NGINX) || has(case, &format!("{DENTREE}/{NGINX}")),
            "{generator}: {compared:?}"
        );
    }
}

#[test]
fn attributes_are_set_by_threads_and_by_processes_through_mounts() {
    let small = ["--clients", "1,3", "--files", "4", "--values", "2", "--sets", "30", "--runs", "2"];
    let output = lab(&[&["xattr", "--sets-in-memory", "100"][..], &small].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for pair in ["old,new", "kernel,dentree", "fuse2fs,mounted"] {
        let missing = |name: &str| text.contains(&format!("not measured: {name}: "));
        if pair.split(',').any(missing) {
            println!("skipped: {pair}: {text}");
            continue;
        }
        let table = text.split(&format!("{pair}: seconds for ")).nth(1).expect(pair);
        let mut lines = table.lines().skip(1);
        assert_eq!(
            [lines.next(), lines.next(), lines.next()],
            [Some(""), Some("V=2"), Some("F\\P 1 3")],
            "{text}"
        );
        let cells: Vec<&str> = lines.next().unwrap().split(' ').collect();
        assert_eq!((cells[0], cells.len()), ("4", 3), "{text}");
        let figures = cells[1..].iter().flat_map(|cell| cell.split(','));
        assert!(figures.map(|figure| figure.parse::<f64>().unwrap()).all(|seconds| seconds > 0.0), "{text}");
    }
}
