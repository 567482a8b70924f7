//! Output and exit status of the commands.

mod common;

use common::{Image, can_mount, dentree, succeeds, text};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

/// A small tree, made through the kernel.
fn small() -> Option<Image> {
    can_mount().then(|| {
        Image::filled(&["-t", "ext4", "-b", "1024", "-L", "small"], |root| {
            fs::create_dir_all(root.join("etc/conf.d")).unwrap();
            fs::create_dir(root.join("etc/conf-x")).unwrap();
            fs::write(root.join("etc/hosts"), "127.0.0.1 localhost\n").unwrap();
            fs::write(root.join("etc/conf.d/A.CONF"), vec![b'x'; 5000]).unwrap();
            fs::write(root.join("etc/.hidden"), "").unwrap();
            fs::hard_link(root.join("etc/hosts"), root.join("hard")).unwrap();
            symlink("etc", root.join("link")).unwrap();
            symlink("hosts", root.join("etc/to-hosts")).unwrap();
            fs::write(root.join("esc\u{1b}[31m"), "").unwrap();
            let old = fs::File::open(root.join("etc/hosts")).unwrap();
            old.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(86_400)).unwrap();
        })
    })
}

fn code(args: &[&str]) -> i32 {
    dentree(args).status.code().unwrap()
}

#[test]
fn ls_lists_names_in_order_and_dots_when_asked() {
    let Some(image) = small() else { return };
    assert_eq!(text(&succeeds(["ls", &image.at("/etc")])), "conf-x\nconf.d\nhosts\nto-hosts\n");
    assert_eq!(
        text(&succeeds(["ls", "-a", &image.at("/etc/")])),
        ".\n..\n.hidden\nconf-x\nconf.d\nhosts\nto-hosts\n"
    );
    assert_eq!(succeeds(["ls", "-0", &image.at("/etc")]), b"conf-x\0conf.d\0hosts\0to-hosts\0");
    // A link argument is followed, as by ls(1).
    assert_eq!(succeeds(["ls", &image.at("/link")]), succeeds(["ls", &image.at("/etc")]));
}

#[test]
fn ls_long_shows_what_stat_of_the_kernel_shows() {
    let Some(image) = small() else { return };
    let mount = image.mount("ro").unwrap();
    let listed = text(&succeeds(["ls", "-l", "-i", "-a", "--time-style=long-iso", &image.at("/etc")]));
    let stat = |name: &str| {
        let format = "%i %A %h %u %g %s";
        let path = mount.at.join("etc").join(name);
        let shown = common::tool("stat", ["-c".as_ref(), format.as_ref(), path.as_os_str()]);
        text(&shown).trim().to_owned()
    };
    for line in listed.lines().skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = words[8];
        assert_eq!(words[..6].join(" "), stat(name), "{line}");
    }
    assert!(listed.contains("1970-01-02 00:00 hosts\n"), "{listed}");
    assert!(listed.contains("to-hosts -> hosts\n"));
}

#[test]
fn ls_recursive_heads_each_directory() {
    let Some(image) = small() else { return };
    assert_eq!(
        text(&succeeds(["ls", "-R", &image.at("etc")])),
        "/etc:\nconf-x\nconf.d\nhosts\nto-hosts\n\n/etc/conf-x:\n\n/etc/conf.d:\nA.CONF\n"
    );
}

#[test]
fn tree_draws_and_counts() {
    let Some(image) = small() else { return };
    assert_eq!(
        text(&succeeds(["tree", &image.at("/etc")])),
        "/etc\n├── conf-x\n├── conf.d\n│   └── A.CONF\n├── hosts\n└── to-hosts -> hosts\n\n2 directories, 3 files\n"
    );
    assert_eq!(
        text(&succeeds(["tree", "-d", "-L", "1", &image.at("/etc")])),
        "/etc\n├── conf-x\n└── conf.d\n\n2 directories\n"
    );
}

#[test]
fn stat_describes_a_link_itself_and_prints_json() {
    let Some(image) = small() else { return };
    let shown = text(&succeeds(["stat", &image.at("/etc/to-hosts")]));
    assert!(shown.contains("File: /etc/to-hosts -> hosts\n") && shown.contains("symbolic link"), "{shown}");
    let shown = succeeds(["stat", "--json", &image.at("/etc/hosts")]);
    let shown: serde_json::Value = serde_json::from_slice(&shown).unwrap();
    assert_eq!(shown["size"], 20);
    assert_eq!(shown["nlink"], 2);
    assert_eq!(shown["mtime"], "86400.000000000");
}

#[test]
fn stat_and_cat_take_their_paths_from_a_file() {
    let Some(image) = small() else { return };
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("list");
    let paths = ["etc/hosts", "/etc/to-hosts", "etc"];
    fs::write(&list, paths.join("\n")).unwrap();
    let list = list.to_str().unwrap();
    let each: Vec<String> =
        paths.iter().map(|path| image.at(&format!("/{}", path.trim_matches('/')))).collect();
    let one_by_one = succeeds(["stat", "--json", &each[0], &each[1], &each[2]]);
    assert_eq!(succeeds(["stat", "--json", "--files-from", list, &image.at("/")]), one_by_one);

    fs::write(list, "hosts\0none\0to-hosts\0").unwrap();
    let output = dentree(["cat", "-T", list, "--null", &image.at("/etc/")]);
    assert_eq!(output.stdout, b"127.0.0.1 localhost\n".repeat(2));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/etc/none: no such file"), "{}", text(&output.stderr));

    let two = dentree(["stat", "-T", list, &image.at("/"), &image.at("/etc")]);
    assert!(two.status.code() == Some(2) && text(&two.stderr).contains("one IMAGE:PATH"));
    let unread = dentree(["stat", "-T", "/nonexistent/list", &image.at("/")]);
    assert!(unread.status.code() == Some(1) && text(&unread.stderr).contains("cannot be read"));
}

#[test]
fn info_names_label_and_features() {
    let Some(image) = small() else { return };
    let shown = text(&succeeds(["info".as_ref(), image.file.as_os_str()]));
    assert!(shown.contains("small") && shown.contains("metadata_csum") && shown.contains("clean"), "{shown}");
    let shown = succeeds(["info", "--json", image.file.to_str().unwrap()]);
    let shown: serde_json::Value = serde_json::from_slice(&shown).unwrap();
    assert_eq!(shown["block_size"], 1024);
    assert_eq!(shown["label"], "small");
}

#[test]
fn find_newer_takes_a_file_of_this_machine_or_of_an_image() {
    let Some(image) = small() else { return };
    let found =
        |reference: &str| text(&succeeds(["find", &image.at("/etc"), "-type", "f", "-newer", reference]));
    let newer = found(&image.at("/etc/hosts"));
    assert!(newer.contains("A.CONF") && !newer.contains("hosts"), "{newer}");
    let reference = image.dir.path().join("reference");
    fs::File::create(&reference).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    assert!(found(reference.to_str().unwrap()).contains("/etc/hosts"));
}

#[test]
fn find_sorts_by_bytes_and_ends_with_nul_when_asked() {
    let Some(image) = small() else { return };
    let sorted = succeeds(["find", image.file.to_str().unwrap(), "--sort", "-print0"]);
    let paths: Vec<&[u8]> = sorted.split(|&byte| byte == 0).filter(|path| !path.is_empty()).collect();
    assert!(paths.is_sorted() && paths.len() > 8);
    let position = |name: &[u8]| paths.iter().position(|path| *path == name).unwrap();
    assert!(position(b"/etc/conf-x") < position(b"/etc/conf.d"));
    assert!(paths.contains(&&b"/esc\x1b[31m"[..]), "names are raw in pipes");
}

#[test]
fn cat_gives_bytes_and_follows_links() {
    let Some(image) = small() else { return };
    let both = succeeds(["cat", &image.at("/link/to-hosts"), &image.at("/etc/conf.d/A.CONF")]);
    assert_eq!(both, [&b"127.0.0.1 localhost\n"[..], &[b'x'; 5000]].concat());
    let directory = dentree(["cat", &image.at("/etc")]);
    assert_eq!(directory.status.code(), Some(1));
    assert!(text(&directory.stderr).ends_with(":/etc: is a directory\n"), "{}", text(&directory.stderr));
}

#[test]
fn xattr_prints_what_getfattr_prints() {
    if !can_mount() {
        return;
    }
    let image = Image::filled(&["-t", "ext4"], |root| {
        fs::write(root.join("f"), "").unwrap();
        common::tool("setfattr", ["-n", "user.note", "-v", "plain text", root.join("f").to_str().unwrap()]);
        common::tool("setfattr", ["-n", "user.raw", "-v", "0x00ff", root.join("f").to_str().unwrap()]);
    });
    assert_eq!(
        text(&succeeds(["xattr", "get", "--dump", &image.at("/f")])),
        "# file: f\nuser.note=\"plain text\"\nuser.raw=0sAP8=\n\n"
    );
}

#[test]
fn du_sums_up_as_du_of_the_system_does() {
    let Some(image) = small() else { return };
    let mount = image.mount("ro").unwrap();
    let total = |text: String| text.split('\t').next().unwrap().to_owned();
    let theirs = text(&common::tool("du", ["-s".as_ref(), mount.at.as_os_str()]));
    assert_eq!(total(text(&succeeds(["du", "-s", image.file.to_str().unwrap()]))), total(theirs));
    let theirs = text(&common::tool("du", [mount.at.join("etc/conf.d")]));
    assert_eq!(total(text(&succeeds(["du", &image.at("/etc/conf.d")]))), total(theirs));
    assert_eq!(
        text(&succeeds(["du", "-s", "-h", &image.at("/etc/conf.d")])).split('\t').next(),
        Some("6.0K")
    );
}

#[test]
fn a_missing_name_is_reported_and_the_rest_is_done() {
    let Some(image) = small() else { return };
    let output = dentree(["cat", &image.at("/nope"), &image.at("/etc/hosts"), &image.at("/etc/hosts/x")]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout, b"127.0.0.1 localhost\n");
    let image = image.file.display();
    assert_eq!(
        text(&output.stderr),
        format!(
            "dentree: {image}:/nope: no such file or directory\ndentree: {image}:/etc/hosts/x: not a directory\n"
        )
    );
}

#[test]
fn wrong_usage_ends_with_2() {
    assert_eq!(code(&["ls"]), 2);
    assert_eq!(code(&["nonsense"]), 2);
}

#[test]
fn no_image_ends_with_1_and_no_file_system_with_4() {
    let output = dentree(["ls", "/nonexistent.img:/x"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).starts_with("dentree: /nonexistent.img: No such file"),
        "{}",
        text(&output.stderr)
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), [0; 4096]).unwrap();
    assert_eq!(code(&["ls", file.path().to_str().unwrap()]), 4);
}

#[test]
fn a_damaged_image_ends_with_3_and_names_the_place() {
    let Some(image) = small() else { return };
    let block = text(&common::tool("debugfs", ["-R", "blocks /etc", image.file.to_str().unwrap()]));
    let block: u64 = block.split_whitespace().next().unwrap().parse().unwrap();
    let file = fs::File::options().write(true).open(&image.file).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xa5; 1024], block * 1024).unwrap();
    let output = dentree(["find", image.file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains(&format!("block {block}")), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("/hard\n"), "the rest is found");
}

#[test]
fn an_unknown_feature_ends_with_4_and_is_named() {
    let image = Image::new(8, &["-t", "ext4", "-O", "^metadata_csum"]);
    image.debugfs(&["feature FEATURE_I31"]);
    let output = dentree(["ls".as_ref(), image.file.as_os_str()]);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("FEATURE_I31"), "{}", text(&output.stderr));
}

#[test]
fn a_closed_pipe_ends_the_program_quietly() {
    let Some(image) = small() else { return };
    let mut child = Command::new(env!("CARGO_BIN_EXE_dentree"))
        .args(["find".as_ref(), image.file.as_os_str()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

#[test]
fn a_file_system_behind_an_offset_is_found() {
    let Some(image) = small() else { return };
    let disk = image.dir.path().join("disk:with:colons.img");
    let mut bytes = vec![0; 1 << 20];
    bytes.extend(fs::read(&image.file).unwrap());
    fs::write(&disk, bytes).unwrap();
    let location = format!("{}:/etc/hosts", disk.display());
    assert_eq!(succeeds(["--offset", "1048576", "cat", &location]), b"127.0.0.1 localhost\n");
    assert_eq!(succeeds(["cat", "--offset", "1048576", &location]), b"127.0.0.1 localhost\n");
}

#[test]
fn stats_show_caches_and_device() {
    let Some(image) = small() else { return };
    let output = dentree(["cat", "--stats", &image.at("/etc/hosts")]);
    assert_eq!(output.stdout, b"127.0.0.1 localhost\n");
    let stats = text(&output.stderr);
    assert!(stats.contains("inodes") && stats.contains("device") && stats.contains("reads"), "{stats}");
}

#[test]
fn opening_and_one_lookup_take_a_handful_of_reads() {
    if !can_mount() {
        return;
    }
    let image = Image::new(4096, &["-t", "ext4"]);
    let mount = image.mount("rw").unwrap();
    fs::create_dir(mount.at.join("etc")).unwrap();
    fs::write(mount.at.join("etc/hosts"), "").unwrap();
    drop(mount);
    let output = dentree(["stat", "--stats", &image.at("/etc/hosts")]);
    let stats = text(&output.stderr);
    let reads = stats.lines().find(|line| line.contains("reads of")).unwrap();
    let reads: u32 = reads.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(reads <= 12, "{stats}");
}

#[test]
fn completions_of_every_shell_and_a_man_page_of_every_command_are_made() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(text(&succeeds(["completions", shell])).contains("checksum"), "{shell}");
    }
    let dir = tempfile::tempdir().unwrap();
    succeeds(["man".as_ref(), dir.path().as_os_str()]);
    for command in
        ["", "-info", "-ls", "-tree", "-stat", "-find", "-cat", "-cp", "-xattr", "-du", "-checksum"]
    {
        let page = fs::read_to_string(dir.path().join(format!("dentree{command}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{command}");
    }
    assert_eq!(code(&["man", "/nonexistent"]), 1);
}

#[test]
fn checksum_lines_have_eleven_fields_in_the_order_of_paths() {
    let Some(image) = small() else { return };
    let lines = text(&succeeds(["checksum", &image.at("/etc")]));
    let paths: Vec<&str> = lines.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert!(paths.is_sorted());
    assert_eq!(paths[0], ".");
    for line in lines.lines() {
        assert_eq!(line.split('\t').count(), 11, "{line}");
    }
    assert!(lines.contains("./hosts\tf\t0644\t0\t0\t20\t86400.000000000\t2\t-\t-\t"), "{lines}");
}

#[test]
fn checksum_of_a_local_tree_needs_no_image() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("sub")).unwrap();
    fs::write(dir.path().join("sub/file"), "content").unwrap();
    fs::set_permissions(dir.path().join("sub/file"), PermissionsExt::from_mode(0o640)).unwrap();
    symlink("to\tnowhere", dir.path().join("link")).unwrap();
    let lines = text(&succeeds([Path::new("checksum"), dir.path()]));
    let owner = fs::metadata(dir.path()).unwrap();
    let owner = format!("{}\t{}", owner.uid(), owner.gid());
    let line = |path: &str| lines.lines().find(|line| line.starts_with(path)).unwrap().to_owned();
    assert!(line("./link\t").contains("\tto\\tnowhere\t-\t-"), "{lines}");
    assert!(line("./sub/file\t").starts_with(&format!("./sub/file\tf\t0640\t{owner}\t7\t")), "{lines}");
    fs::write(dir.path().join("sub/file"), "CONTENT").unwrap();
    assert_ne!(text(&succeeds([Path::new("checksum"), dir.path()])), lines);
}

#[test]
fn the_demo_runs_and_says_what_to_type_next() {
    let shown = text(&succeeds(["demo"]));
    assert!(shown.contains("lookups/s") && shown.contains("dentree info disk.img"), "{shown}");
}

#[test]
fn a_broken_leaf_hides_no_more_than_its_own_names_from_ls_find_and_cp() {
    for options in [&["-t", "ext4"][..], &["-t", "ext4", "-O", "^dir_index"], &["-t", "ext2"]] {
        let image = Image::new(16, &[&["-b", "1024"], options].concat());
        let local = image.dir.path().join("dir");
        fs::create_dir(&local).unwrap();
        for n in 0..200 {
            fs::write(local.join(format!("a file with a long name {n:03}")), "content").unwrap();
        }
        succeeds(["cp", local.to_str().unwrap(), &image.at("/")]);
        let block = text(&common::tool("debugfs", ["-R", "bmap /dir 3", image.file.to_str().unwrap()]));
        let block: u64 = block.trim().parse().unwrap();
        let file = fs::File::options().write(true).open(&image.file).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[0xa5; 1024], block * 1024).unwrap();
        let copy = image.dir.path().join("copy");
        let count = |args: &[&str]| {
            let output = dentree(args);
            let message = text(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{args:?}: {message}");
            assert!(message.contains(&format!("block {block}")), "{args:?}: {message}");
            assert_eq!(message.lines().count(), 1, "{args:?}: {message}");
            text(&output.stdout).matches("long name").count()
        };
        let listed = count(&["ls", &image.at("/dir")]);
        assert!((150..200).contains(&listed), "{listed} of 200");
        assert_eq!(count(&["find", &image.at("/dir")]), listed);
        count(&["cp", &image.at("/dir"), copy.to_str().unwrap()]);
        assert_eq!(fs::read_dir(&copy).unwrap().count(), listed);
    }
}
