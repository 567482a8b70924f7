//! Commands that change an image, compared with the programs of the same name on the kernel's file
//! system.

mod common;
mod oracle;

use common::{Image, can_mount, dentree, succeeds, text, tool};
use oracle::{assert_clean, assert_kernel_agrees, assert_same_as_coreutils, journal_sequence, on_each_kind};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};

#[test]
fn commands_change_an_image_like_the_programs_of_the_same_name() {
    if !can_mount() {
        return;
    }
    on_each_kind(32, |image| {
        assert_same_as_coreutils(
            image,
            &[
                "mkdir @/a @/b @/ab",
                "mkdir -p @/a/b/c/d @/a/b/e",
                "mkdir -m 1770 @/sticky",
                "mkdir -m u=rwx,g=rx,o= @/symbolic",
                "mkdir @/a",
                "mkdir @/none/below",
                "mkdir -p @/a/b @/a",
                "touch @/f @/g @/a/b/c/h",
                "touch -c @/none",
                "mkdir -p @/f",
                "mkdir -p @/f/below",
                "truncate -s 70000 @/f",
                "truncate -s +3 @/f",
                "truncate -s %1K @/f",
                "truncate -s 3M @/g @/made",
                "truncate -s 17 @/g",
                "truncate -c -s 17 @/none",
                "truncate -s 1 @/a",
                "truncate -r @/f @/like",
                "truncate -r @/f -s +7 @/like",
                "touch --time=mtime @/made",
                "touch -f --time use @/made",
                "chmod u+x,go-w @/f",
                "chmod 2755 @/b",
                "chmod 700 @/b",
                "chmod -R g+rwX,o= @/a",
                "chmod 644 @/none @/g",
                "chown 1000:100 @/f",
                "chown -R :7 @/a",
                "chown 70000 @/g",
                "chmod 6755 @/made",
                "chown 3:4 @/made",
                "chmod 6755 @/made",
                "truncate -s 5 @/made",
                "ln @/f @/hard",
                "ln @/f @/a @/b",
                "ln @/f @/g @/a/b",
                "ln -s f @/soft",
                "ln -s ../f nowhere @/a/b/c",
                "chown -h 5:6 @/soft",
                "chown 9 @/soft",
                "chmod 600 @/soft",
                "ln @/g @/hard",
                "ln -f @/g @/hard",
                "ln -s -f elsewhere @/soft",
                "ln -s over @/g",
                "ln -v @/f @/verbose",
                "ln -t @/a @/f",
                "ln -t @/g @/f",
                "ln -sT over @/a",
                "ln -sT over @/text",
                "ln -s a @/to-a",
                "ln -sn other @/to-a",
                "ln -sfn other @/to-a",
                "ln -s f @/to-f",
                "ln -L @/to-f @/hard-by-link",
                "ln -P @/to-f @/link-again",
                "mv @/hard @/a/b/c",
                "mv @/a/b/c/hard @/back",
                "mv @/a/b @/moved",
                "mv @/moved @/moved/c/d",
                "mv @/f @/f",
                "mv -n @/f @/g",
                "mv @/back @/g",
                "mv @/b @/g",
                "mv @/g @/b",
                "mv @/ab @/b @/a",
                "mkdir @/a/x @/x @/a/x/full",
                "mv @/x @/a",
                "mv @/sticky @/none/below",
                "rm @/none",
                "rm -f @/none @/moved/e/none",
                "rm @/a",
                "rm @/a/b/f @/a/b/g",
                "rm -r @/moved/c",
                "rm -rf @/a/x @/none",
            ],
        );
    });
}

#[test]
fn touch_sets_the_requested_times() {
    if !can_mount() {
        return;
    }
    on_each_kind(32, |image| {
        let at = |name: &str| image.at(name);
        succeeds(["mkdir", &at("/d")]);
        succeeds(["ln", "-s", "nowhere", &at("/l")]);
        succeeds(["touch", "-d", "@1700000000.25", &at("/d/f"), &at("/d")]);
        succeeds(["touch", "-t", "197001020304.05", &at("/old")]);
        succeeds(["touch", "-a", "-d", "2001-09-09T01:46:40Z", &at("/d/f")]);
        succeeds(["touch", "-h", "-d", "@77", &at("/l")]);
        succeeds(["touch", "-r", &at("/d/f"), &at("/like")]);
        let local = image.dir.path().join("reference");
        fs::write(&local, "").unwrap();
        fs::File::open(&local).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        succeeds(["touch", "-m", "-r", local.to_str().unwrap(), &at("/since-1970")]);
        let mount = image.mount("ro").unwrap();
        let times = |name: &str| {
            let found = fs::symlink_metadata(mount.at.join(name)).unwrap();
            let nanos = |n: i64| if found.ctime_nsec() == 0 { 0 } else { n };
            ((found.atime(), nanos(found.atime_nsec())), (found.mtime(), nanos(found.mtime_nsec())))
        };
        // Inodes of 128 bytes have whole seconds.
        let quarter = if times("d").1.1 == 0 { 0 } else { 250_000_000 };
        assert_eq!(times("d"), ((1_700_000_000, quarter), (1_700_000_000, quarter)));
        assert_eq!(times("d/f"), ((1_000_000_000, 0), (1_700_000_000, quarter)));
        assert_eq!(times("old"), ((97_445, 0), (97_445, 0)));
        assert_eq!(times("l"), ((77, 0), (77, 0)));
        assert_eq!(times("like"), times("d/f"));
        assert_eq!(times("since-1970").1, (0, 0));
        drop(mount);
        assert_kernel_agrees(image);
    });
}

#[test]
fn one_command_is_one_transaction() {
    let image = Image::new(64, &["-t", "ext4"]);
    let transactions = |args: &[String]| {
        let before = journal_sequence(&image.file);
        succeeds(args);
        assert_clean(&image.file);
        journal_sequence(&image.file) - before
    };
    let all = |command: &[&str], name: &str, count: usize| -> Vec<String> {
        let paths = (0..count).map(|n| image.at(&format!("/{name}{n}")));
        command.iter().map(|word| (*word).to_owned()).chain(paths).collect()
    };
    let one = transactions(&all(&["mkdir"], "first", 1));
    assert!(one <= 2, "{one}");
    assert_eq!(transactions(&all(&["mkdir"], "d", 300)), one);
    assert_eq!(transactions(&all(&["touch"], "f", 300)), one);
    assert_eq!(transactions(&all(&["chmod", "600"], "f", 300)), one);
    assert_eq!(transactions(&all(&["chown", "7:8"], "f", 300)), one);
    assert_eq!(transactions(&all(&["touch", "-d", "@5"], "f", 300)), one);
    assert_eq!(transactions(&[all(&["mv"], "f", 300), vec![image.at("/d0")]].concat()), one);
    assert_eq!(transactions(&all(&["rm", "-r"], "d", 300)), one);
}

#[test]
fn the_root_and_targets_of_links_are_not_removed() {
    let image = Image::new(32, &["-t", "ext4"]);
    succeeds(["mkdir", "-p", &image.at("/d/below")]);
    succeeds(["touch", &image.at("/d/kept"), &image.at("/file")]);
    succeeds(["ln", "-s", "d", &image.at("/link")]);
    for wrong in ["/", "/.", "/..", "/d/.", "/d/..", "/link/", "/link/.", "/file/"] {
        for command in [&["rm", "-r"][..], &["rm", "-rf"]] {
            let output = dentree(command.iter().copied().chain([image.at(wrong).as_str()]));
            assert_eq!(output.status.code(), Some(1), "{wrong}");
            assert!(text(&output.stderr).contains(wrong.trim_end_matches('/')), "{}", text(&output.stderr));
        }
    }
    assert_eq!(text(&succeeds(["find", image.file.to_str().unwrap(), "--sort"])).lines().count(), 7);
    succeeds(["rm", &image.at("/link")]);
    assert_eq!(text(&succeeds(["ls", &image.at("/d")])), "below\nkept\n");
    assert_clean(&image.file);
}

#[test]
fn a_slash_after_a_file_is_an_error() {
    let image = Image::new(32, &["-t", "ext4"]);
    succeeds(["touch", &image.at("/file")]);
    for command in
        [&["touch"][..], &["truncate", "-s", "5"], &["chmod", "600"], &["chown", "1"], &["mkdir", "-p"]]
    {
        let output = dentree(command.iter().copied().chain([image.at("/file/").as_str()]));
        assert_eq!(output.status.code(), Some(1), "{command:?}");
    }
    for path in ["/new/", "/file/"] {
        assert_eq!(dentree(["touch", &image.at(path)]).status.code(), Some(1), "{path}");
        assert_eq!(dentree(["mv", &image.at("/file"), &image.at(path)]).status.code(), Some(1), "{path}");
        assert_eq!(dentree(["ln", &image.at("/file"), &image.at(path)]).status.code(), Some(1), "{path}");
    }
    assert_eq!(text(&succeeds(["stat", "--json", &image.at("/file")])).matches("\"size\":0").count(), 1);
}

#[test]
fn errors_name_the_image_the_path_and_what_to_do_and_the_rest_is_done() {
    let image = Image::new(32, &["-t", "ext4"]);
    let said = |args: &[&str]| {
        let output = dentree(args);
        (output.status.code(), text(&output.stderr))
    };
    let name = image.file.display();
    let (code, message) = said(&["mkdir", &image.at("/a"), &image.at("/none/b"), &image.at("/c")]);
    assert_eq!((code, message), (Some(1), format!("dentree: {name}:/none/b: no such file or directory\n")));
    assert_eq!(text(&succeeds(["ls", &image.at("/")])), "a\nc\nlost+found\n");
    for (args, code, words) in [
        (&["chown", "root", "/a"][..], 2, &["number", "/etc/passwd"][..]),
        (&["chmod", "u+q", "/a"], 2, &["u+rwX"]),
        (&["touch", "-d", "yesterday", "/a"], 2, &["yesterday"]),
        (&["truncate", "-s", "5Q", "/a"], 2, &["K, M, G and T"]),
        (&["rm", "/a"], 1, &["/a", "-r removes it"]),
        (&["ln", "/a", "/x"], 1, &["/a", "-s makes a symbolic link"]),
        (&["mv", "/a", "/a/b"], 1, &["/a", "into itself"]),
        (&["ln", "-s", "IMAGE", "/y"], 2, &["leave out the image"]),
    ] {
        let words_of = |word: &&str| match *word {
            "IMAGE" => image.at("/x"),
            path if path.starts_with('/') => image.at(path),
            word => word.to_owned(),
        };
        let args: Vec<String> = args.iter().map(words_of).collect();
        let output = dentree(&args);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {message}");
        assert!(words.iter().all(|word| message.contains(word)), "{args:?}: {message}");
    }
    let (code, message) = said(&["mkdir", "nowhere.img:/a"]);
    assert!(code == Some(1) && message.contains("nowhere.img"), "{message}");
    assert_clean(&image.file);
}

#[test]
fn unsupported_features_are_refused_for_writing_by_name() {
    for (features, word) in
        [("quota", "quota"), ("bigalloc", "bigalloc"), ("mmp", "mmp"), ("encrypt", "encrypt")]
    {
        let image = Image::new(64, &["-t", "ext4", "-O", features]);
        let before = fs::read(&image.file).unwrap();
        let output = dentree(["mkdir", &image.at("/a")]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{message}");
        assert!(message.contains(word), "{message}");
        assert!(before == fs::read(&image.file).unwrap(), "{features}");
        succeeds(["ls", &image.at("/")]);
    }
}

#[test]
fn a_damaged_image_ends_with_3_and_stays_as_it_is() {
    let image = Image::new(32, &["-t", "ext4"]);
    succeeds(["mkdir", &image.at("/d")]);
    let block: u64 =
        text(&tool("debugfs", ["-R", "blocks /d", image.file.to_str().unwrap()])).trim().parse().unwrap();
    let file = fs::File::options().write(true).open(&image.file).unwrap();
    file.write_all_at(b"?", (block << 10) + 30).unwrap();
    let content = || {
        let mut block_of_d = vec![0; 1024];
        fs::File::open(&image.file).unwrap().read_exact_at(&mut block_of_d, block << 10).unwrap();
        block_of_d
    };
    let before = content();
    for args in
        [&["mkdir", &image.at("/d/new")][..], &["rm", "-r", &image.at("/d")], &["touch", &image.at("/d/new")]]
    {
        let output = dentree(args);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{args:?}: {message}");
        assert!(message.contains(&format!("block {block}")), "{args:?}: {message}");
    }
    assert!(before == content());
}

#[test]
fn a_change_stays_within_its_partition() {
    const START: u64 = 1 << 20;
    let image = Image::new(16, &["-t", "ext4"]);
    let disk = image.dir.path().join("whole.img");
    let mut bytes = vec![0xA5; 20 << 20];
    let inside = START as usize..(START as usize) + (16 << 20);
    bytes[inside.clone()].copy_from_slice(&fs::read(&image.file).unwrap());
    let mut record = [0; 66];
    record[4] = 0x83;
    record[8..12].copy_from_slice(&((START / 512) as u32).to_le_bytes());
    record[12..16].copy_from_slice(&(16_u32 << 11).to_le_bytes());
    record[64..].copy_from_slice(&[0x55, 0xaa]);
    bytes[446..512].copy_from_slice(&record);
    fs::write(&disk, &bytes).unwrap();
    let at = |path: &str| format!("{}:{path}", disk.display());
    succeeds(["mkdir", &at("/found")]);
    succeeds(["mkdir", "--partition", "1", &at("/by-number")]);
    succeeds(["mkdir", "--offset", "1048576", &at("/by-offset")]);
    let now = fs::read(&disk).unwrap();
    assert!(now[..inside.start] == bytes[..inside.start] && now[inside.end..] == bytes[inside.end..]);
    fs::write(&image.file, &now[inside]).unwrap();
    assert_clean(&image.file);
    assert_eq!(text(&succeeds(["ls", &image.at("/")])), "by-number\nby-offset\nfound\nlost+found\n");
}

#[test]
fn an_image_with_a_writer_is_refused_and_the_writer_named() {
    let image = Image::new(32, &["-t", "ext4"]);
    let held = fs::File::open(&image.file).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let before = fs::read(&image.file).unwrap();
    let at = image.at("/x");
    let source = image.dir.path().to_str().unwrap();
    for args in [
        &["mkdir", &at][..],
        &["rm", "-f", &at],
        &["mv", &at, &at],
        &["ln", "-s", "x", &at],
        &["chmod", "0", &at],
        &["chown", "0", &at],
        &["touch", &at],
        &["truncate", "-s", "0", &at],
        &["cp", source, &at],
    ] {
        let output = dentree(args);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {message}");
        assert!(message.contains(&format!("process {}", std::process::id())), "{args:?}: {message}");
    }
    assert!(before == fs::read(&image.file).unwrap());
    // Opening for reading is allowed.
    succeeds(["ls", &image.at("/")]);
}

#[test]
fn an_image_that_the_kernel_has_mounted_for_writing_is_refused() {
    if !can_mount() {
        return;
    }
    let image = Image::new(32, &["-t", "ext4"]);
    {
        let _mount = image.mount("rw").unwrap();
        let output = dentree(["mkdir", &image.at("/a")]);
        let message = text(&output.stderr);
        assert!(output.status.code() == Some(1) && message.contains("the kernel (/dev/loop"), "{message}");
    }
    succeeds(["mkdir", &image.at("/a")]);
    assert_kernel_agrees(&image);
}

#[test]
fn an_image_that_was_not_closed_is_recovered_before_it_is_changed() {
    if !can_mount() {
        return;
    }
    let image = Image::new(64, &["-t", "ext4"]);
    // A copy of a mounted image is in the state after a crash.
    let copy = Image { file: image.dir.path().join("copy.img"), dir: tempfile::tempdir().unwrap() };
    {
        let mount = image.mount("rw").unwrap();
        fs::create_dir(mount.at.join("before")).unwrap();
        rustix::fs::syncfs(fs::File::open(&mount.at).unwrap()).unwrap();
        fs::copy(&image.file, &copy.file).unwrap();
    }
    let output = dentree(["mkdir", &copy.at("/behind")]);
    let message = text(&output.stderr);
    assert!(output.status.success() && message.contains("not unmounted cleanly"), "{message}");
    assert_eq!(text(&succeeds(["ls", &copy.at("/")])), "before\nbehind\nlost+found\n");
    assert_kernel_agrees(&copy);
}
