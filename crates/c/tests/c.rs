//! A C program that is linked with the library: on its own, under valgrind, and with
//! AddressSanitizer. Needs a C compiler and mke2fs; says what is missing.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// Every mistake ends the program.
const SANITIZE: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The sorted lines of a program that must succeed.
fn lines(command: &mut Command) -> Vec<String> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    let mut lines: Vec<_> = text(&output.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// What pkg-config says of `dentree.pc`, filled in as an installation would; the same by hand where
/// it is missing.
fn pkg_config(dir: &Path, built: &Path) -> Vec<String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let include = here.join("include");
    let pc = fs::read_to_string(here.join("dentree.pc.in")).unwrap();
    let pc = pc.replace("@VERSION@", env!("CARGO_PKG_VERSION")).replace("@PREFIX@", "/usr");
    let pc = pc.replace("${prefix}/include", include.to_str().unwrap());
    let pc = pc.replace("${prefix}/lib", built.to_str().unwrap());
    assert!(!pc.contains('@'), "{pc}");
    fs::write(dir.join("dentree.pc"), pc).unwrap();
    let mut asked = Command::new("pkg-config");
    asked.env("PKG_CONFIG_PATH", dir).args(["--cflags", "--libs", "dentree >= 0.1"]);
    let by_hand = [format!("-I{}", include.display()), format!("-L{}", built.display()), "-ldentree".into()];
    let Ok(output) = asked.output() else {
        println!("skipped: pkg-config is not installed");
        return by_hand.to_vec();
    };
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said: Vec<_> = text(&output.stdout).split_whitespace().map(str::to_owned).collect();
    assert_eq!(said, by_hand);
    said
}

struct Program {
    dir: TempDir,
}

impl Program {
    /// `None`, and a printed reason, where something is missing.
    fn build() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        for program in ["cc", "mke2fs"] {
            if let Err(error) = Command::new(program).arg("-V").output() {
                println!("skipped: {program}: {error}");
                return None;
            }
        }
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("etc/deep")).unwrap();
        fs::create_dir_all(tree.join("pruned/below")).unwrap();
        fs::write(tree.join("etc/hosts"), "127.0.0.1 localhost\n").unwrap();
        fs::write(tree.join("etc/deep/large"), "0123456789abcde".repeat(100_000)).unwrap();
        (0..500).for_each(|number| fs::write(tree.join(format!("etc/{number}")), "x").unwrap());
        std::os::unix::fs::symlink("etc/hosts", tree.join("link")).unwrap();
        let mut mke2fs = Command::new("mke2fs");
        mke2fs.args(["-q", "-F", "-t", "ext4", "-d"]).arg(&tree).arg(dir.path().join("disk.img")).arg("64M");
        lines(&mut mke2fs);
        let program = Program { dir };
        program.compile("read", &["read.c"]);
        Some(program)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Compiles a program of the sources and options that `arguments` name from this directory.
    fn compile(&self, name: &str, arguments: &[&str]) {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let built = env::current_exe().unwrap().parent().unwrap().to_owned();
        let mut cc = Command::new("cc");
        cc.current_dir(here.join("tests")).args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-g"]);
        cc.args(arguments).args(pkg_config(self.dir.path(), &built)).arg("-o").arg(self.at(name));
        lines(cc.arg(format!("-Wl,-rpath,{}", built.display())));
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(self.at("read")).current_dir(&self.dir).args(arguments).output().unwrap()
    }

    fn prints(&self, arguments: &[&str]) -> Vec<String> {
        lines(Command::new(self.at("read")).current_dir(&self.dir).args(arguments))
    }

    fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr)
    }
}

#[test]
fn the_header_is_what_cbindgen_makes() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut made = Vec::new();
    cbindgen::generate(here).unwrap().write(&mut made);
    let header = here.join("include/dentree.h");
    if fs::read(&header).ok().as_deref() != Some(&made) {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dentree.h");
        fs::write(&place, &made).unwrap();
        panic!("copy {} to {}", place.display(), header.display());
    }
}

#[test]
fn a_program_in_c_reads_what_is_in_the_image() {
    let Some(program) = Program::build() else { return };
    let tree = program.at("tree");
    let find = |options: &[&str], format| {
        let mut find = Command::new("find");
        lines(find.current_dir(&tree).args(options).args(["-printf", format]))
    };
    let mut found = program.prints(&["disk.img", "find", "/"]);
    found.retain(|line| !line.starts_with("lost+found "));
    // Sizes of directories are the file system's own.
    let of_files =
        |lines: &[String]| -> Vec<_> { lines.iter().filter(|line| !line.contains(" d ")).cloned().collect() };
    let all = find(&[".", "-mindepth", "1", "!", "-path", "./pruned/*"], "%P %y %m %s %T@\n");
    let all: Vec<_> = all.iter().map(|line| line.rsplit_once('.').unwrap().0.to_owned()).collect();
    assert_eq!(of_files(&found), of_files(&all));
    assert_eq!(found.len(), all.len());
    assert_eq!(
        program.prints(&["disk.img", "list", "/etc"]),
        find(&["etc", "-mindepth", "1", "-maxdepth", "1"], "%f %y\n")
    );
    assert_eq!(
        program.run(&["disk.img", "cat", "/etc/deep/large"]).stdout,
        fs::read(tree.join("etc/deep/large")).unwrap()
    );
    assert_eq!(program.prints(&["disk.img", "link", "/link"]), ["etc/hosts"]);
    assert_eq!(program.prints(&["disk.img", "cat", "/link"]), ["127.0.0.1 localhost"]);
    assert_eq!(
        program.run(&["disk.img", "find", "/", "etc/hosts"]).status.code(),
        Some(1),
        "ended by the caller"
    );
}

#[test]
fn failures_have_an_errno_and_a_message() {
    let Some(program) = Program::build() else { return };
    for (arguments, said) in [
        (["disk.img", "cat", "/etc/gone"], "No such file or directory: /etc/gone: "),
        (["disk.img", "cat", "/etc"], "Is a directory: /etc: "),
        (["disk.img", "list", "/etc/hosts"], "Not a directory: /etc/hosts: "),
        (["disk.img", "link", "/etc"], "Invalid argument: /etc: "),
        (["gone.img", "list", "/"], "No such file or directory: gone.img: "),
        (["read", "list", "/"], "Invalid argument: read: "),
    ] {
        let failed = program.fails(&arguments);
        assert!(failed.starts_with(said), "{arguments:?}: {failed}");
    }
    let failed = program.fails(&["disk.img", "xattr", "/etc", "user.none"]);
    assert!(failed.starts_with("No data available: /etc: "), "{failed}");
}

#[test]
fn valgrind_and_address_sanitizer_find_nothing() {
    let Some(program) = Program::build() else { return };
    program.compile("without ring", &["read.c", "no_ring.c"]);
    program.compile("sanitized", &["read.c", SANITIZE[0], SANITIZE[1]]);
    for arguments in
        [["disk.img", "find", "/"], ["disk.img", "cat", "/etc/deep/large"], ["gone.img", "list", "/"]]
    {
        let expected = program.run(&arguments);
        let run = |command: &mut Command| command.current_dir(&program.dir).args(arguments).output().unwrap();
        let sanitized = run(&mut Command::new(program.at("sanitized")));
        assert_eq!(
            (sanitized.status, &sanitized.stdout),
            (expected.status, &expected.stdout),
            "{}",
            text(&sanitized.stderr)
        );
        let options =
            ["--quiet", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"];
        let mut valgrind = Command::new("valgrind");
        valgrind.args(options).arg(program.at("without ring"));
        if valgrind.output().is_err() {
            println!("skipped: valgrind is not installed");
            continue;
        }
        let checked = run(&mut valgrind);
        assert_eq!(
            (checked.status, &checked.stdout),
            (expected.status, &expected.stdout),
            "{}",
            text(&checked.stderr)
        );
    }
}

/// Damages images for so long, and makes all calls on each, with AddressSanitizer.
fn fuzz(seconds: u32) {
    let Some(program) = Program::build() else { return };
    program.compile("fuzz", &["fuzz.c", "-O1", SANITIZE[0], SANITIZE[1]]);
    let (tree, kinds) =
        (program.at("tree"), [&["-O", "metadata_csum"][..], &["-O", "^metadata_csum,inline_data"]]);
    let share = (seconds / 2).to_string();
    for (options, seed) in kinds.into_iter().zip(["1", "1000000000"]) {
        let image = program.at("fuzzed.img");
        let mut mke2fs = Command::new("mke2fs");
        mke2fs.args(["-q", "-F", "-t", "ext4", "-b", "1024"]).args(options);
        lines(mke2fs.arg("-d").arg(&tree).arg(&image).arg("8M"));
        let mut fuzz = Command::new(program.at("fuzz"));
        let ended = fuzz.arg(image).args([&share, seed]).arg(program.at("number")).output().unwrap();
        let number = fs::read_to_string(program.at("number")).unwrap();
        assert!(ended.status.success(), "{:?} by damage {number}{}", ended.status, text(&ended.stderr));
        print!("{options:?}: {}", text(&ended.stdout));
    }
}

#[test]
fn a_damaged_image_is_a_failure_and_not_the_end_of_the_program() {
    fuzz(8);
}

#[test]
#[ignore = "takes ten minutes"]
fn ten_minutes_of_damage_are_not_the_end_of_the_program() {
    fuzz(600);
}
