//! `dentree cp` and `dentree mv` between images and within one.

mod common;
mod mounts;
mod oracle;
mod population;

use common::{Image, assert_same_lines, can_mount, dentree, succeeds, text};
use oracle::assert_clean;
use std::ffi::OsStr;
use std::fs;

fn checksum(tree: impl AsRef<OsStr>) -> Vec<u8> {
    succeeds(["checksum".as_ref(), tree.as_ref()])
}

/// An image with files, links, a sparse file and directories below `/d`.
fn small() -> Image {
    let image = Image::new(32, &["-t", "ext4"]);
    let local = image.dir.path().join("local");
    fs::create_dir_all(local.join("d/e")).unwrap();
    fs::write(local.join("d/f"), "content").unwrap();
    fs::hard_link(local.join("d/f"), local.join("d/e/g")).unwrap();
    std::os::unix::fs::symlink("f", local.join("d/l")).unwrap();
    fs::File::create(local.join("d/sparse")).unwrap().set_len(9 << 20).unwrap();
    succeeds(["cp", "-a", local.join("d").to_str().unwrap(), &image.at("/")]);
    image
}

#[test]
fn an_archive_copy_between_images_keeps_everything() {
    if !can_mount() {
        return;
    }
    let source = Image::filled(&["-t", "ext4"], population::everything);
    let expected = checksum(&source.file);
    for options in [&["-b", "1024", "-I", "512", "-O", "inline_data"][..], &[]] {
        let image = Image::new(160, &[&["-t", "ext4"], options].concat());
        succeeds(["cp", "-a", &source.at("/"), &image.at("/")]);
        assert_same_lines(&checksum(&image.file), &expected);
        assert_clean(&image.file);
    }
    assert_same_lines(&checksum(&source.file), &expected);
}

#[test]
fn a_copy_within_an_image_shares_nothing_and_never_enters_itself() {
    let image = small();
    succeeds(["cp", "-a", &image.at("/d"), &image.at("/copy")]);
    assert_same_lines(&checksum(image.at("/copy")), &checksum(image.at("/d")));
    for target in ["/d", "/d/e", "/d/new"] {
        let output = dentree(["cp", "-a", &image.at("/d"), &image.at(target)]);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("into itself"), "{}", text(&output.stderr));
    }
    let same = dentree(["cp", &image.at("/d/f"), &image.at("/d/e/g")]);
    assert!(text(&same.stderr).contains("the same file"), "{}", text(&same.stderr));
    assert_eq!(succeeds(["cat", &image.at("/d/f")]), b"content");
    succeeds(["cp", "-l", &image.at("/d/f"), &image.at("/hard")]);
    succeeds(["cp", "-s", &image.at("/d/f"), &image.at("/soft")]);
    assert_eq!(
        text(&succeeds(["stat", "-c", "%h %N", &image.at("/hard"), &image.at("/soft")])),
        "3 '/hard'\n1 '/soft' -> '/d/f'\n"
    );
    for target in [image.dir.path().join("f").to_str().unwrap(), &small().at("/f")] {
        let output = dentree(["cp", "-l", &image.at("/d/f"), target]);
        assert!(text(&output.stderr).contains("links stay within one image"), "{}", text(&output.stderr));
    }
    assert_clean(&image.file);
}

#[test]
fn a_move_between_images_keeps_everything_and_leaves_nothing() {
    let (from, to) = (small(), Image::new(32, &["-t", "ext4"]));
    let expected = checksum(from.at("/d"));
    let told = text(&succeeds(["mv", "-v", &from.at("/d"), &to.at("/")]));
    assert_eq!(told, format!("renamed '{}' -> '{}'\n", from.at("/d"), to.at("/d")));
    assert_same_lines(&checksum(to.at("/d")), &expected);
    assert_eq!(text(&succeeds(["ls", &from.at("/")])), "lost+found\n");
    // Back, over an empty directory and a file, but not over a full one.
    succeeds(["mkdir", "-p", &from.at("/x/d"), &from.at("/full/d/y")]);
    let refused = dentree(["mv", &to.at("/d"), &from.at("/full")]);
    assert!(refused.status.code() == Some(1) && text(&refused.stderr).contains("not empty"));
    succeeds(["mv", "-T", &to.at("/d"), &from.at("/x/d")]);
    assert_same_lines(&checksum(from.at("/x/d")), &expected);
    assert_clean(&from.file);
    assert_clean(&to.file);
}

#[test]
fn what_a_full_image_does_not_hold_stays_where_it_was() {
    let (from, to) = (small(), Image::new(4, &["-t", "ext4", "-b", "1024", "-O", "^has_journal"]));
    let large = from.dir.path().join("large");
    fs::write(&large, vec![7; 6 << 20]).unwrap();
    succeeds(["cp", large.to_str().unwrap(), &from.at("/d")]);
    let expected = checksum(from.at("/d"));
    let output = dentree(["mv", &from.at("/d"), &to.at("/")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("stays, as not all of it was copied"), "{}", text(&output.stderr));
    assert_same_lines(&checksum(from.at("/d")), &expected);
    assert_clean(&from.file);
    assert_clean(&to.file);
}
