//! `dentree stat` against stat(1) on the kernel's mount.

mod common;
mod varied;

use common::{dentree, succeeds, text};
use std::process::Command;
use varied::varied;

const FORMAT: &str = "%a|%A|%b|%B|%f|%F|%g|%G|%h|%i|%n|%N|%o|%s|%r|%R|%Hr|%Lr|%t|%T|%u|%U|%w|%W|%x|%X|%y|%Y|%z|%Z|\
                      %%|%q|%04a|%#a|%#f|%-9s|%9s|%09s|%.3Y|%.X|%-20U|%6t|%.3U";
const OF_FILE_SYSTEM: &str = "%a|%b|%c|%d|%f|%i|%l|%s|%S|%t|%T";

#[test]
fn formats_give_what_stat_gives() {
    let Some(image) = varied() else { return };
    let mount = image.mount("ro").unwrap();
    let listed =
        text(&succeeds(["ls", "-1", "-A", "--quoting-style=literal", "-I", "new*", &image.at("/dir")]));
    let names: Vec<&str> = listed.lines().collect();
    assert!(names.len() > 15, "{names:?}");
    let options = [
        vec!["-c", FORMAT],
        vec!["--printf", "%s\\t\\x41\\101\\n"],
        vec!["-L", "-c", "%F %s"],
        vec!["-f", "-c", OF_FILE_SYSTEM],
        vec!["--file-system"],
    ];
    for options in options {
        for name in names.iter().filter(|name| **name != "lnx" || options[0] == "-c") {
            let theirs = Command::new("stat")
                .args(&options)
                .arg(mount.at.join("dir").join(name))
                .env("LC_ALL", "C")
                .env("TZ", "UTC")
                .env_remove("QUOTING_STYLE")
                .output()
                .unwrap();
            let at = image.at(&format!("/dir/{name}"));
            let ours = succeeds(["stat"].into_iter().chain(options.clone()).chain([&*at]));
            let theirs = text(&theirs.stdout).replace(mount.at.to_str().unwrap(), "");
            assert_eq!(text(&ours), theirs, "stat {options:?} {name}");
        }
    }
}

#[test]
fn terse_lines_have_the_fields_of_stat() {
    let Some(image) = varied() else { return };
    let mount = image.mount("ro").unwrap();
    let fields =
        |output: Vec<u8>| -> Vec<String> { text(&output).split_whitespace().map(str::to_owned).collect() };
    let theirs = fields(common::tool("stat", ["-t".as_ref(), mount.at.join("dir/f10").as_os_str()]));
    let ours = fields(succeeds(["stat", "-t", &image.at("/dir/f10")]));
    // The name, and the device, differ.
    assert_eq!((ours.len(), &ours[1..6], &ours[7..]), (theirs.len(), &theirs[1..6], &theirs[7..]));
}

#[test]
fn a_description_names_the_owner_and_a_dangling_link_is_told_when_followed() {
    let Some(image) = varied() else { return };
    let shown = text(&succeeds(["stat", &image.at("/dir/p")]));
    assert!(shown.contains("Uid: 1 (daemon)  Gid: 1 (daemon)"), "{shown}");
    let output = dentree(["stat", "-L", &image.at("/dir/lnx")]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()));
}
