//! Arguments that name files of an image: patterns, inode numbers, several images.

mod common;

use common::{Image, dentree, succeeds, text};
use std::fs;

/// Files `/d/a.conf`, `/d/b.conf`, `/d/.hidden.conf`, `/d/*` and `/e/a.conf`.
fn image() -> Image {
    let image = Image::new(16, &["-t", "ext4"]);
    succeeds(["mkdir", &image.at("/d"), &image.at("/e")]);
    for name in ["a.conf", "b.conf", ".hidden.conf", "star*"] {
        let local = image.dir.path().join(name);
        fs::write(&local, name).unwrap();
        succeeds(["cp", local.to_str().unwrap(), &image.at("/d")]);
    }
    succeeds(["cp", image.dir.path().join("a.conf").to_str().unwrap(), &image.at("/e")]);
    image
}

#[test]
fn patterns_name_the_paths_that_a_shell_would() {
    let image = image();
    let named = |pattern: &str| text(&succeeds(["ls", "-d", &image.at(pattern)]));
    assert_eq!(named("/d/*.conf"), "/d/a.conf\n/d/b.conf\n");
    assert_eq!(named("/d/.*.conf"), "/d/.hidden.conf\n");
    assert_eq!(named("/?/a.conf"), "/d/a.conf\n/e/a.conf\n");
    assert_eq!(named("/[!d]/*"), "/e/a.conf\n");
    assert_eq!(named("/*/"), "/d\n/e\n/lost+found\n");
    // A name that exists is no pattern, and a backslash takes a meaning away.
    assert_eq!([named("/d/star*"), named(r"/d/*\*")], ["/d/star*\n", "/d/star*\n"]);
}

#[test]
fn a_pattern_without_matches_is_a_missing_file() {
    let image = image();
    let output = dentree(["cat", &image.at("/d/*.none"), &image.at("/d/a*")]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), "a.conf".into()));
    assert!(text(&output.stderr).contains("/d/*.none: no such file"), "{}", text(&output.stderr));
}

#[test]
fn patterns_work_in_commands_that_change_and_that_copy() {
    let image = image();
    let out = image.dir.path().join("out");
    fs::create_dir(&out).unwrap();
    succeeds(["cp", &image.at("/d/*.conf"), out.to_str().unwrap()]);
    assert_eq!(fs::read(out.join("b.conf")).unwrap(), b"b.conf");
    succeeds(["mv", &image.at("/d/[ab].conf"), &image.at("/lost+found")]);
    assert_eq!(text(&succeeds(["ls", &image.at("/lost+found")])), "a.conf\nb.conf\n");
    succeeds(["rm", &image.at("/*/?.conf")]);
    assert_eq!(text(&succeeds(["ls", &image.at("/lost+found"), &image.at("/e")])), "/e:\n\n/lost+found:\n");
}

#[test]
fn a_number_in_angle_brackets_is_an_inode() {
    let image = image();
    let number = text(&succeeds(["ls", "-i", "-d", &image.at("/d")]));
    let number = number.split(' ').next().unwrap();
    assert_eq!(text(&succeeds(["cat", &image.at(&format!("<{number}>/a.conf"))])), "a.conf");
    assert_eq!(text(&succeeds(["ls", &image.at("<2>")])), "d\ne\nlost+found\n");
    assert_eq!(text(&succeeds(["ls", "-d", &image.at(&format!("<{number}>/*.conf"))])).lines().count(), 2);
    for (command, path, said) in
        [("cat", "<4000000>", "inode"), ("rm", "<12>", "no name"), ("ls", "<0>", "inode")]
    {
        let output = dentree([command, &image.at(path)]);
        assert_ne!(output.status.code(), Some(0));
        assert!(text(&output.stderr).contains(said), "{}", text(&output.stderr));
    }
}

#[test]
fn with_several_images_each_line_says_which() {
    let (one, two) = (image(), image());
    let listed = text(&succeeds(["ls", &one.at("/e"), &two.at("/d/a.conf")]));
    assert_eq!(listed, format!("{}\n\n{}:\na.conf\n", two.at("/d/a.conf"), one.at("/e")));
}
