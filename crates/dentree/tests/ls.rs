//! `dentree ls` against ls(1) on the kernel's mount, in the C locale.

mod common;
mod varied;

use common::{Image, dentree, succeeds, text};
use std::process::Command;
use varied::varied;

/// Each line holds options of one run.
const OPTIONS: &str = "\
-a
-A
-la
-la --time-style=full-iso
-1 -l
-C
-C -w 30
-C -w 0
-C -T 0
-x
-x -F -w 40
-m
-m -w 30
-m -i
-F
-l -F
-R -F
-p
--file-type
-l --indicator-style=file-type
-Q
-l -Q
-b
-N
--quoting-style=shell
--quoting-style=shell-escape
--quoting-style=shell-escape-always
--quoting-style=locale
-l --quoting-style=shell-escape
-C --quoting-style=shell-escape
-q
-s
-s -C
-k -s
-s --block-size=M
-l -s
-l -s -h
-l -h
-l --si
-l --block-size=K
-l --block-size=1000
-l -k
-i
-1 -i -s
-t
-t -r
-S
-X
-v
-r
-c
-u -t
-l -c
-l -u
-l --time=birth
--sort=width
--group-directories-first
-B
-I f*
--hide=f*
-n
-l -n
-g
-o
-g -G
-l -G
-l --author
-R
-l -R
-l -d
-d
-l -H
-Z
-l -Z
--zero
-l --full-time -t
-l --time-style=iso
-l --time-style=long-iso
-l --time-style=+%s
-l --color=always
--color=always
-C -l
-l -C
-l -x";

#[test]
fn listings_are_byte_for_byte_those_of_ls() {
    let Some(image) = varied() else { return };
    let mount = image.mount("ro").unwrap();
    // Paths of arguments are those of the image.
    let shown = |output: &[u8]| text(output).replace(mount.at.to_str().unwrap(), "");
    for line in OPTIONS.lines() {
        let options: Vec<&str> = line.split(' ').collect();
        let theirs = Command::new("ls")
            .args(&options)
            .arg(mount.at.join("dir"))
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
            // Without a terminal's name ls(1) has no colours.
            .env("TERM", "xterm")
            .env_remove("LS_COLORS")
            .env_remove("QUOTING_STYLE")
            .output()
            .unwrap();
        let at = image.at("/dir");
        let ours = succeeds(["ls"].into_iter().chain(options).chain([&*at]));
        // ls(1) begins its first colour by ending one.
        let theirs = shown(&theirs.stdout).replacen("\x1b[0m\x1b[", "\x1b[", 1);
        assert_eq!(text(&ours), theirs, "ls {line}");
    }
}

#[test]
fn links_are_followed_as_ls_follows_them_and_a_dangling_one_is_told() {
    let Some(image) = varied() else { return };
    let output = dentree(["ls", "-L", "-n", &image.at("/dir")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/dir/lnx: no such file"), "{}", text(&output.stderr));
    let listed = text(&output.stdout);
    let line = |name: &str| listed.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap();
    assert!(line("lnd").starts_with("drwxrwxrwt") && line("ln").starts_with("-rwxr-xr-x"), "{listed}");
    assert!(line("lnx").starts_with("l????????? ") && line("lnx").contains(" ? lnx"), "{listed}");
    assert_eq!(text(&succeeds(["ls", &image.at("/dir/lnd")])), "below\n");
    assert_eq!(text(&succeeds(["ls", "-d", &image.at("/dir/lnd")])), "/dir/lnd\n");
}

#[test]
fn owners_have_the_names_that_the_image_gives_them() {
    let image = Image::new(16, &["-t", "ext4"]);
    let local = |name: &str, text: &str| {
        let file = image.dir.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    succeeds(["mkdir", &image.at("/etc")]);
    let passwd = local("passwd", "ann:x:7:8::/:\nbad name:x:9:9::/:\nesc\x1b[31m:x:9:9::/:\n");
    succeeds(["cp", &passwd, &local("group", "staff:x:8:\n"), &image.at("/etc")]);
    succeeds(["touch", &image.at("/a"), &image.at("/b")]);
    succeeds(["chown", "ann:", &image.at("/a")]);
    succeeds(["chown", "9:staff", &image.at("/b")]);
    let listed = |option: &str| {
        let output = text(&succeeds(["ls", option, &image.at("/a"), &image.at("/b")]));
        output
            .lines()
            .map(|line| line.split_whitespace().skip(2).take(2).collect::<Vec<_>>().join(" "))
            .collect()
    };
    let (names, numbers): (Vec<String>, Vec<String>) = (listed("-l"), listed("--numeric"));
    assert_eq!((&*names[0], &*names[1]), ("ann staff", "9 staff"));
    assert_eq!((&*numbers[0], &*numbers[1]), ("7 8", "9 8"));
    let unknown = dentree(["chown", "nobody", &image.at("/a")]);
    assert!(text(&unknown.stderr).contains("no user \"nobody\" in the image's /etc/passwd"));
}

#[test]
fn json_has_an_object_per_file() {
    let image = Image::new(16, &["-t", "ext4"]);
    succeeds(["mkdir", &image.at("/d")]);
    succeeds(["ln", "-s", "to", &image.at("/d/l")]);
    let listed = text(&succeeds(["ls", "--json", &image.at("/d")]));
    assert_eq!(listed.lines().count(), 1);
    assert!(listed.contains(r#""path":"/d/l""#) && listed.contains(r#""target":{"path":"to"}"#), "{listed}");
}
