//! `dentree shell`: what a script does, and what a user at a terminal does.

mod common;

use common::{Image, assert_clean, dentree, succeeds, text, tool};
use dentree_testing::PATIENCE;
use rustix::event::{PollFd, PollFlags, poll};
use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Command, Output, Stdio};

fn image() -> Image {
    let image = Image::new(16, &["-t", "ext4"]);
    succeeds(["mkdir", "-p", &image.at("/etc/conf d"), &image.at("/empty")]);
    fs::write(image.dir.path().join("hosts"), "127.0.0.1 localhost\n").unwrap();
    let hosts = image.dir.path().join("hosts");
    succeeds(["cp", hosts.to_str().unwrap(), &image.at("/etc/hosts")]);
    succeeds(["ln", "-s", "/etc/hosts", &image.at("/link")]);
    image
}

/// Runs a script in the directory of the image.
fn script(image: &Image, options: &[&str], lines: &str) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_dentree"));
    let program = program.arg("shell").args(options).arg("disk.img").current_dir(image.dir.path());
    let program = program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut program = program.env("TZ", "UTC").spawn().unwrap();
    // A script that ends early leaves the rest unread.
    let _ = program.stdin.take().unwrap().write_all(lines.as_bytes());
    program.wait_with_output().unwrap()
}

/// The output of a script that succeeds without messages.
fn prints(image: &Image, options: &[&str], lines: &str) -> String {
    let output = script(image, options, lines);
    assert_eq!(text(&output.stderr), "");
    assert!(output.status.success());
    text(&output.stdout)
}

#[test]
fn paths_begin_in_the_current_directory_of_the_image() {
    let image = image();
    let said =
        prints(&image, &[], "cd etc\npwd\nls\ncat hosts ../etc/./hosts\ncd conf\\ d\npwd\nls ..\ncd\nls\n");
    let hosts = "127.0.0.1 localhost\n";
    let root = "empty\netc\nlink\nlost+found\n";
    assert_eq!(said, format!("/etc\nconf d\nhosts\n{hosts}{hosts}/etc/conf d\nconf d\nhosts\n{root}"));
    let said = prints(
        &image,
        &[],
        "# all\nfind -name 'h*' # below /\ncd 'etc'\nfind .. -maxdepth 1 -type l\ncat h*\n",
    );
    assert_eq!(said, format!("/etc/hosts\n/link\n{hosts}"));
}

#[test]
fn commands_print_what_they_print_on_the_command_line() {
    let image = image();
    let commands = [
        ("ls -la /etc", vec!["ls", "-la", "@/etc"]),
        ("tree", vec!["tree", "@/"]),
        ("du -a etc", vec!["du", "-a", "@/etc"]),
        ("stat -t etc/hosts", vec!["stat", "-t", "@/etc/hosts"]),
        ("checksum", vec!["checksum", "@/"]),
        ("tar c etc", vec!["tar", "c", "@/etc"]),
        ("xattr ls link", vec!["xattr", "ls", "@/link"]),
        ("info", vec!["info", "@"]),
        ("label", vec!["label", "@"]),
        ("cat <2>/etc/hosts", vec!["cat", "@<2>/etc/hosts"]),
        ("find / -newer link", vec!["find", "@/", "-newer", "@/link"]),
    ];
    for (line, args) in commands {
        let at = |arg: &str| arg.strip_prefix('@').map_or(arg.to_owned(), |path| image.at(path));
        let expected = text(&succeeds(args.iter().map(|arg| at(arg).trim_end_matches(':').to_owned())));
        assert_eq!(prints(&image, &[], line), expected, "{line}");
    }
}

#[test]
fn get_and_put_copy_between_the_two_current_directories() {
    let image = image();
    fs::create_dir_all(image.dir.path().join("here/tree/below")).unwrap();
    fs::write(image.dir.path().join("here/tree/below/x"), "x").unwrap();
    let lines = "lcd here\nput tree /empty\ncd empty\nput tree/below/x y\nget tree/below copy\nget y\nget /link\nlpwd\n";
    let here = image.dir.path().join("here");
    assert_eq!(prints(&image, &["-w"], lines), format!("{}\n", here.canonicalize().unwrap().display()));
    assert_eq!(fs::read(here.join("copy/x")).unwrap(), b"x");
    assert_eq!(fs::read(here.join("y")).unwrap(), b"x");
    assert_eq!(fs::read(here.join("link")).unwrap(), b"127.0.0.1 localhost\n");
    assert_eq!(text(&succeeds(["cat", &image.at("/empty/tree/below/x"), &image.at("/empty/y")])), "xx");
    assert_clean(&image.file);
}

#[test]
fn a_change_survives_once_its_command_has_ended() {
    let image = image();
    let output = script(&image, &["-w"], "mkdir a\nput hosts a\nmv a b\n!kill -KILL $PPID\n");
    assert_eq!(output.status.code(), None, "{}", text(&output.stderr));
    // The journal is replayed.
    assert_eq!(text(&dentree(["cat", &image.at("/b/hosts")]).stdout), "127.0.0.1 localhost\n");
    tool("sh", ["-c", "e2fsck -fy \"$0\" > /dev/null || [ $? = 1 ]", image.file.to_str().unwrap()]);
    assert_clean(&image.file);
}

#[test]
fn a_script_ends_at_the_first_line_that_fails_unless_it_begins_with_a_dash() {
    let image = image();
    let output = script(&image, &[], "-ls /nothing\n- cat etc\npwd\nls /gone\npwd\n");
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), "/\n".to_owned()));
    let said = text(&output.stderr);
    assert!(said.contains("disk.img:/gone: no such file or directory"), "{said}");
    assert!(said.ends_with("dentree: line 4 failed; what follows it is not run\n"), "{said}");
    let status = |lines: &str| script(&image, &[], lines).status.code();
    assert_eq!(
        [status("nonsense"), status("ls --nonsense"), status("ls 'a"), status("!exit 3")],
        [Some(2), Some(2), Some(2), Some(1)]
    );
    assert_eq!(
        [status("quit\nnonsense"), status("-ls /gone"), status("ls --help"), status("help")],
        [Some(0); 4]
    );
}

#[test]
fn an_image_that_is_open_for_reading_is_not_changed() {
    let image = image();
    let before = fs::read(&image.file).unwrap();
    for line in ["mkdir a", "put hosts", "rm link", "dedup", "label new", "mkdir disk.img:/a"] {
        let output = script(&image, &[], line);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains("disk.img: is open"), "{line}: {said}");
    }
    assert!(fs::read(&image.file).unwrap() == before);
}

#[test]
fn another_image_is_named_as_on_the_command_line() {
    let image = image();
    fs::copy(&image.file, image.dir.path().join("other.img")).unwrap();
    let lines =
        "mkdir other.img:/made\ncp etc/hosts other.img:/made\ncp other.img:/made .\nlabel other.img\n";
    assert_eq!(prints(&image, &["-w"], lines), "\n");
    assert_eq!(text(&succeeds(["cat", &image.at("/made/hosts")])), "127.0.0.1 localhost\n");
    assert_clean(&image.file);
    assert_clean(image.dir.path().join("other.img"));
}

#[test]
fn commands_that_need_no_open_image_are_refused() {
    let image = image();
    for line in [
        "mount disk.img mnt",
        "serve",
        "shell disk.img",
        "demo",
        "completions bash",
        "man .",
        "cache ls",
        "resize",
    ] {
        let output = script(&image, &[], line);
        let said = text(&output.stderr);
        assert!(said.contains("run it outside of this shell"), "{line}: {said}");
        assert_eq!(output.status.code(), Some(2));
    }
    assert!(!prints(&image, &[], "help").contains("mount"));
}

/// A shell at a terminal, which script(1) is; it ends with the test.
struct Typed {
    script: Child,
    shown: Vec<u8>,
}

impl Typed {
    /// `None`, and a printed reason, where script(1) is missing.
    fn begin(image: &Image, options: &str) -> Option<Typed> {
        // `exec`: an sh(1) that waits for its child reports the Ctrl-C that the child survived.
        let line = format!("exec {} shell {options} disk.img", env!("CARGO_BIN_EXE_dentree"));
        // A test in the background may ignore Ctrl-C, which a shell cannot undo.
        let mut script = Command::new("perl");
        script.args(["-e", "$SIG{INT} = 'DEFAULT'; exec @ARGV or exit 127"]);
        script.args(["script", "-q", "-e", "-c", &line, "/dev/null"]).current_dir(image.dir.path());
        script.env("TERM", "xterm").env("XDG_STATE_HOME", image.dir.path().join("state"));
        match script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() {
            Ok(script) => Some(Typed { script, shown: Vec::new() }),
            Err(error) => {
                println!("skipped: needs perl, which starts script(1): {error}");
                None
            }
        }
    }

    fn types(&mut self, keys: &str) {
        self.script.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for a text, and forgets what was shown up to its end. Fails after [`PATIENCE`].
    fn shows(&mut self, text: &str) {
        let mut chunk = [0; 4096];
        loop {
            let found = self.shown.windows(text.len()).position(|shown| shown == text.as_bytes());
            if let Some(at) = found {
                self.shown.drain(..at + text.len());
                return;
            }
            let shown = self.script.stdout.as_mut().unwrap();
            let timeout = PATIENCE.try_into().unwrap();
            let ready = poll(&mut [PollFd::new(shown, PollFlags::IN)], Some(&timeout)).unwrap();
            let len = if ready > 0 { shown.read(&mut chunk).unwrap() } else { 0 };
            assert!(len > 0, "no {text:?} in {:?}", common::text(&self.shown));
            self.shown.extend(&chunk[..len]);
        }
    }

    fn ends(&mut self) -> Option<i32> {
        let mut rest = Vec::new();
        self.script.stdout.as_mut().unwrap().read_to_end(&mut rest).unwrap();
        self.script.wait().unwrap().code()
    }
}

impl Drop for Typed {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

#[test]
fn the_tab_key_completes_commands_and_paths_of_both_sides() {
    let image = image();
    fs::create_dir(image.dir.path().join("here")).unwrap();
    let Some(mut typed) = Typed::begin(&image, "") else { return };
    typed.shows("disk.img:/> ");
    typed.types("cd et\t\r");
    typed.shows("disk.img:/etc> ");
    typed.types("ca\tho\t\r");
    typed.shows("127.0.0.1 localhost");
    typed.types("cd 'co\t'\r");
    typed.shows("disk.img:/etc/conf d> ");
    typed.types("lcd he\t\rlpwd\r");
    typed.shows("/here\r\n");
    typed.types("ls /e\t\t");
    typed.shows("empty/");
    typed.shows("etc/");
    typed.types("mp\t\rquit\r");
    assert_eq!(typed.ends(), Some(0));
}

#[test]
fn a_shell_remembers_the_lines_of_earlier_ones() {
    let image = image();
    let Some(mut typed) = Typed::begin(&image, "") else { return };
    typed.shows("disk.img:/> ");
    typed.types("ls /etc\r");
    typed.shows("hosts");
    typed.shows("disk.img:/> ");
    typed.types("\x04");
    assert_eq!(typed.ends(), Some(0));
    let mut typed = Typed::begin(&image, "").unwrap();
    typed.shows("disk.img:/> ");
    typed.types("\x1b[A\r");
    typed.shows("hosts");
    // Without a place for it there is no history, and all else works.
    fs::remove_dir_all(image.dir.path().join("state")).unwrap();
    fs::write(image.dir.path().join("state"), "").unwrap();
    let mut typed = Typed::begin(&image, "").unwrap();
    typed.shows("disk.img:/> ");
    typed.types("ls /etc\r");
    typed.shows("hosts");
}

#[test]
fn an_interruption_ends_the_command_and_not_the_shell() {
    let image = image();
    succeeds(["truncate", "-s", "64G", &image.at("/zeros")]);
    let Some(mut typed) = Typed::begin(&image, "-w") else { return };
    typed.shows("disk.img:/> ");
    typed.types("not a command\x03");
    typed.shows("disk.img:/> ");
    for _ in 0..2 {
        typed.types("cat zeros\r");
        typed.shows("\0\0\0\0");
        typed.types("\x03");
        typed.shows("disk.img:/> ");
    }
    // Lines typed ahead are not lost.
    typed.types("ls /nothing\rmkdir made\rls\r");
    typed.shows("no such file");
    typed.shows("zeros");
    typed.shows("disk.img:/> ");
    typed.types("\x04");
    assert_eq!(typed.ends(), Some(0));
    assert_eq!(text(&succeeds(["ls", &image.at("/made")])), "");
    assert_clean(&image.file);
}
