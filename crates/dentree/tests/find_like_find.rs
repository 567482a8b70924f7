//! `dentree find` beside find(1) on the kernel's mount of the same image.

mod common;

use common::{Image, Mount, can_mount, dentree, text};
use std::collections::HashSet;
use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

const NAMES: [&str; 16] = [
    "a.c",
    "B.C",
    "core",
    "x y",
    "-dash",
    "[b]",
    "a+b",
    "é",
    ".hidden",
    "README",
    "lib.so.1",
    "(p)",
    "q\\",
    "z~",
    "0",
    "new\nline",
];
const DAY: u64 = 86_400;

/// The numbers of a seed (SplitMix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % sides as u64) as usize
    }
}

/// A tree of all kinds of files below `/tree`, made by chance, with the names of this machine's
/// owners; its directories.
struct Forest {
    root: PathBuf,
    dice: Dice,
    directories: Vec<PathBuf>,
    files: Vec<PathBuf>,
}

impl Forest {
    fn fill(root: &Path) -> Vec<PathBuf> {
        fs::create_dir(root.join("etc")).unwrap();
        for file in ["etc/passwd", "etc/group"] {
            fs::copy(Path::new("/").join(file), root.join(file)).unwrap();
        }
        let tree = root.join("tree");
        fs::create_dir(&tree).unwrap();
        let mut forest = Forest {
            root: root.to_owned(),
            dice: Dice(17),
            directories: vec![tree.clone()],
            files: Vec::new(),
        };
        fs::create_dir(root.join("plain")).unwrap();
        fs::write(root.join("plain/file"), "x").unwrap();
        for _ in 0..40 {
            let parent = forest.any_directory();
            let name = forest.name();
            let dir = parent.join(name);
            if parent.components().count() < tree.components().count() + 5 && fs::create_dir(&dir).is_ok() {
                forest.directories.push(dir);
            }
        }
        for _ in 0..260 {
            forest.file();
        }
        let directories = forest.directories.clone();
        // Deepest first: a change below changes the time of the directory above.
        directories.iter().rev().for_each(|dir| forest.attributes(dir));
        let inside = |path: &PathBuf| Path::new("/").join(path.strip_prefix(&forest.root).unwrap());
        // The -samefile of find(1) opens its file: no FIFO, no device without a driver.
        let is_special = |path: &&PathBuf| {
            let kind = path.symlink_metadata().unwrap().file_type();
            kind.is_fifo() || kind.is_block_device() || kind.is_char_device()
        };
        let paths = forest.directories.iter().chain(&forest.files).filter(|path| !is_special(path));
        paths.map(inside).collect()
    }

    fn any_directory(&mut self) -> PathBuf {
        self.directories[self.dice.roll(self.directories.len())].clone()
    }

    fn name(&mut self) -> String {
        let name = NAMES[self.dice.roll(NAMES.len())];
        if self.dice.roll(2) == 0 { name.to_owned() } else { format!("{name}{}", self.dice.roll(9)) }
    }

    fn file(&mut self) {
        let path = self.any_directory().join(self.name());
        if path.symlink_metadata().is_ok() {
            return;
        }
        match self.dice.roll(10) {
            0 => {
                let target = ["README", "none", "../a.c", ".", "x y"][self.dice.roll(5)];
                // No loop: find(1) reports them, and the other test has one.
                let target = if target == "." { "/none".to_owned() } else { target.to_owned() };
                symlink(target, &path).unwrap();
            }
            1 => {
                let depth = path.components().count() - self.root.components().count() - 1;
                symlink(format!("{}plain", "../".repeat(depth)), &path).unwrap();
            }
            2 if !self.files.is_empty() => {
                let other = &self.files[self.dice.roll(self.files.len())];
                fs::hard_link(other, &path).unwrap();
                self.files.push(path);
                return;
            }
            3 => {
                let kind = [["p", "", ""], ["b", "7", "3"], ["c", "300", "5"]][self.dice.roll(3)];
                let words = kind.into_iter().filter(|word| !word.is_empty());
                common::tool("mknod", [path.to_str().unwrap()].into_iter().chain(words));
            }
            _ => {
                let size = [0, 1, 511, 512, 513, 4096, 20_000, 1_048_577, 3_000_000][self.dice.roll(9)];
                let file = File::create(&path).unwrap();
                match self.dice.roll(2) {
                    0 => file.set_len(size).unwrap(),
                    _ => fs::write(&path, vec![b'x'; size.min(50_000) as usize]).unwrap(),
                }
            }
        }
        self.attributes(&path);
        self.files.push(path);
    }

    /// Owners, mode and times; times are half an hour off whole days.
    fn attributes(&mut self, path: &Path) {
        let mut owner = || Some([0, 0, 1, 4, 1000, 4242][self.dice.roll(6)]);
        lchown(path, owner(), owner()).unwrap();
        if path.is_symlink() {
            return;
        }
        let mode = [0o644, 0o755, 0o600, 0o4755, 0o2711, 0o1777, 0o000, 0o444][self.dice.roll(8)];
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        let mut time = || {
            let days = [0, 1, 2, 7, 30, 200, 400][self.dice.roll(7)];
            SystemTime::now() - Duration::from_secs(days * DAY + 1800)
        };
        let times = FileTimes::new().set_accessed(time()).set_modified(time());
        // Opening a FIFO would wait, and a device have no driver.
        if path.is_dir() || path.is_file() {
            File::open(path).unwrap().set_times(times).unwrap();
        }
    }
}

struct Expressions {
    dice: Dice,
    /// Paths of the image.
    paths: Vec<PathBuf>,
}

impl Expressions {
    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.dice.roll(from.len())]
    }

    /// A path; the mount's directory or the image comes before it.
    fn path(&mut self) -> String {
        format!("@{}", self.paths[self.dice.roll(self.paths.len())].display())
    }

    fn number(&mut self, from: &[&str]) -> String {
        let number = self.pick(from);
        format!("{}{number}", self.pick(&["", "+", "-"]))
    }

    /// A whole command line.
    fn line(&mut self) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        if self.dice.roll(4) == 0 {
            words.push(self.pick(&["-L", "-H", "-P"]).into());
        }
        words.push("@/tree".into());
        if self.dice.roll(5) == 0 {
            words.push(self.path());
        }
        for option in ["-maxdepth", "-mindepth"] {
            if self.dice.roll(5) == 0 {
                words.extend([option.into(), self.pick(&["0", "1", "2", "3"]).into()]);
            }
        }
        if self.dice.roll(6) == 0 {
            words.push(self.pick(&["-depth", "-d", "-daystart", "-xdev", "-noleaf"]).into());
        }
        self.list(3, &mut words);
        words
    }

    fn list(&mut self, depth: usize, words: &mut Vec<String>) {
        let operators = ["-o", "-or", "-a", "-and", "", ""];
        for part in 0..=self.dice.roll(4) {
            if part > 0 {
                words.extend(Some(self.pick(&operators).to_owned()).filter(|word| !word.is_empty()));
            }
            if self.dice.roll(4) == 0 {
                words.push(self.pick(&["!", "-not"]).into());
            }
            match self.dice.roll(10) {
                0..3 if depth > 0 => {
                    words.push("(".into());
                    self.list(depth - 1, words);
                    words.push(")".into());
                }
                3 if depth > 0 => {
                    for word in COMMA {
                        words.push(word.into());
                        if word != COMMA[2] {
                            self.list(depth - 1, words);
                        }
                    }
                }
                9 => self.action(words),
                _ => self.test(words),
            }
        }
    }

    fn action(&mut self, words: &mut Vec<String>) {
        let format = [
            "%p|%f|%P|%H|%h|%d\n",
            "%s %b %k %i %m %#m %M %n %S\n",
            "%u %U %g %G %l %y %Y %F %p\n",
            "%a|%t|%T@|%A+|%TY-%Tm-%Td %TH:%TM:%TS|%Tj %TU %Tk %Ta %TB|%p\n",
            "%5d|%-5d|%05m|%10f|%-10f|%.2f|%%|\\t\\101\\0|%p\n",
            "%Tc %Tr %Tx %TX %TD %TF %TT %TW %Tw %Ty %Th %Tl %TI %Tp %Tz %TZ %Te %p\n",
        ];
        match self.dice.roll(6) {
            0 => words.push("-prune".into()),
            1 => words.push("-print".into()),
            2 => words.push("-ls".into()),
            _ => words.extend(["-printf".into(), self.pick(&format).into()]),
        }
    }

    fn test(&mut self, words: &mut Vec<String>) {
        let globs = [
            "*",
            "a*",
            "*.[cC]",
            "?",
            "[!a-m]*",
            "*o*",
            "\\[b\\]*",
            "[[:upper:]]*",
            "*[0-9]",
            "-*",
            "é",
            "*\\\\*",
            "*\n*",
        ];
        let paths = ["*/a*", "*tree*/[a-m]*", "*tree*/.*", "*/tree/?*/*", "*tree*y/*", "*"];
        let regexes = [
            ("findutils-default", r".*/\(a\|B\)[^/]*"),
            ("findutils-default", ".*[0-9]"),
            ("findutils-default", r".*/a\+b.*"),
            ("emacs", ".*/[a-m][^/]+"),
            ("emacs", ".*new.line.*"),
            ("posix-basic", r".*/[[:alpha:]]\{2,4\}"),
            ("posix-basic", r".*\.\w\+"),
            ("sed", r".*/\(.*\)\?0"),
            ("posix-extended", ".*/(a|x y|core)[0-9]?"),
            ("posix-extended", r".*/[[:upper:]]{2,}\>.*"),
            ("egrep", r".*/[^/]*(\+|\()[^/]*"),
        ];
        let kind = |dice: &mut Expressions| {
            dice.pick(&["f", "d", "l", "p", "b", "c", "s", "f,l", "d,p,b"]).to_owned()
        };
        let days = ["0", "1", "2", "6", "7", "29", "30", "31", "200", "399", "1.5"];
        let minutes = ["10", "45", "1450", "2890", "43210", "100000"];
        let modes = [
            "644",
            "0755",
            "-111",
            "/222",
            "-u+w",
            "/u=x,g=s",
            "u=rw,go=r",
            "-4000",
            "/6000",
            "0",
            "-0",
            "/0",
            "a=rX,u+w",
            "-o+t",
            "g-w",
            "/a+x",
            "ug=rw",
        ];
        match self.dice.roll(26) {
            0 => {
                let glob = self.pick(&globs);
                // fnmatch(3) of glibc finds no upper case at all where it ignores case.
                let names = if glob.contains("upper") { &["-name"][..] } else { &["-name", "-iname"] };
                words.extend([self.pick(names).into(), glob.into()]);
            }
            1 => {
                let name = self.pick(&["-path", "-ipath", "-wholename", "-iwholename"]);
                words.extend([name.into(), self.pick(&paths).into()]);
            }
            2 | 3 => {
                let (kind, pattern) = regexes[self.dice.roll(regexes.len())];
                let name = self.pick(&["-regex", "-iregex"]);
                words.extend(["-regextype", kind, name, pattern].map(str::to_owned));
            }
            4 | 5 => words.extend(["-type".into(), kind(self)]),
            6 => words.extend(["-xtype".into(), kind(self)]),
            7 => words.extend(["-perm".into(), self.pick(&modes).into()]),
            8 => {
                let units = [
                    "0", "1", "2", "8", "1c", "512c", "20000c", "256w", "1b", "1k", "4k", "20k", "1M", "2M",
                    "3M", "1G",
                ];
                words.extend(["-size".into(), self.number(&units)]);
            }
            9 => words.push("-empty".into()),
            10 => words.extend([self.pick(&["-uid", "-gid"]).into(), self.number(&["0", "1", "4", "1000"])]),
            11 => words.extend(["-user".into(), self.pick(&["root", "daemon", "1000", "4242"]).into()]),
            12 => words.extend(["-group".into(), self.pick(&["root", "adm", "1000", "daemon"]).into()]),
            13 => words.push(self.pick(&["-nouser", "-nogroup"]).into()),
            14 => words.extend(["-links".into(), self.number(&["1", "2", "3"])]),
            15 => words.extend(["-inum".into(), self.number(&["20", "50", "100"])]),
            16 => words.extend([self.pick(&["-mtime", "-atime", "-ctime"]).into(), self.number(&days)]),
            17 => words.extend([self.pick(&["-mmin", "-amin"]).into(), self.number(&minutes)]),
            18 => words.extend([
                self.pick(&["-newer", "-anewer", "-cnewer", "-newerma", "-newercm", "-neweraa"]).into(),
                self.path(),
            ]),
            19 => {
                let times = [
                    "2 days ago",
                    "yesterday",
                    "2001-02-03",
                    "2001-02-03 04:05:06",
                    "@1000000000",
                    "last month",
                ];
                words.extend([
                    self.pick(&["-newermt", "-newerat", "-newerct"]).into(),
                    self.pick(&times).into(),
                ]);
            }
            20 => words.extend(["-samefile".into(), self.path()]),
            21 => {
                let targets = ["none", "*plain", "../*", "*E*"];
                words.extend([self.pick(&["-lname", "-ilname"]).into(), self.pick(&targets).into()]);
            }
            22 => words.push(self.pick(&["-executable", "-readable"]).into()),
            23 => words.push(self.pick(&["-true", "-false"]).into()),
            24 => words.extend(["-used".into(), self.number(&["0", "1", "2.5"])]),
            _ => words.extend(["-fstype".into(), self.pick(&["ext4", "xfs"]).into()]),
        }
    }
}

/// `( LIST , LIST )`. The optimiser of findutils 4.9 may exchange the sides of a comma, and with
/// them what it is worth; so find(1) gets the same without one.
const COMMA: [&str; 3] = ["<", "|", ">"];

fn comma(word: &str, by: [&str; 3]) -> Vec<String> {
    let found = COMMA.iter().position(|mark| *mark == word);
    found.map_or(vec![word.to_owned()], |at| by[at].split(' ').map(str::to_owned).collect())
}

fn theirs(mount: &Mount, line: &[String]) -> Output {
    let at = mount.at.display().to_string();
    let words = line.iter().map(|word| word.strip_prefix('@').map_or(word.clone(), |path| at.clone() + path));
    let words = words.flat_map(|word| comma(&word, ["( ( (", ") -o -fprintf /dev/null x ) (", ") )"]));
    let mut find = Command::new("find");
    find.args(words).env("LC_ALL", "C.UTF-8").env("TZ", "UTC").output().unwrap()
}

fn ours(image: &Image, line: &[String]) -> Output {
    let words = line.iter().map(|word| word.strip_prefix('@').map_or(word.clone(), |path| image.at(path)));
    let words = words.flat_map(|word| comma(&word, ["( (", ") , -fprintf /dev/null x (", ") )"]));
    dentree(["find".to_owned()].into_iter().chain(words))
}

/// The lines of an output in order, without what stands before paths of the image, and with single
/// spaces: `-ls` of find(1) widens its columns as it goes.
fn lines(output: &Output, before: &str) -> Vec<String> {
    let mut lines: Vec<String> = text(&output.stdout)
        .replace(before, "")
        .split('\n')
        .map(|line| line.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" "))
        .collect();
    lines.sort();
    lines
}

#[test]
fn five_hundred_random_expressions_give_what_find_of_the_system_gives() {
    if !can_mount() {
        return;
    }
    let mut paths = Vec::new();
    let image = Image::filled(&["-t", "ext4"], |root| paths = Forest::fill(root));
    let mount = image.mount("ro").unwrap();
    let before = mount.at.display().to_string();
    let mut expressions = Expressions { dice: Dice(4), paths };
    let (mut differences, mut found, mut seen) = (Vec::new(), 0, HashSet::new());
    for _ in 0..500 {
        let line = expressions.line();
        let (theirs, ours) = (theirs(&mount, &line), ours(&image, &line));
        let (expected, got) = (lines(&theirs, &before), lines(&ours, ""));
        found += expected.len();
        seen.extend(line.iter().filter(|word| word.starts_with('-')).cloned());
        if expected != got || theirs.status.code() != ours.status.code() {
            let only = |a: &[String], b: &[String]| {
                let b: HashSet<&String> = b.iter().collect();
                a.iter().filter(|line| !b.contains(line)).take(3).cloned().collect::<Vec<_>>()
            };
            differences.push(format!(
                "{line:?}\n  find only: {:?} {}\n  dentree only: {:?} {}",
                only(&expected, &got),
                text(&theirs.stderr),
                only(&got, &expected),
                text(&ours.stderr),
            ));
        }
    }
    println!("{found} lines, {} words", seen.len());
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
    assert!(found > 20_000 && seen.len() > 60, "{found} lines, {seen:?}");
}

/// Starts, links and what is in directories, for tests by hand.
fn small() -> Option<Image> {
    can_mount().then(|| {
        Image::filled(&["-t", "ext4"], |root| {
            fs::create_dir_all(root.join("t/a/b")).unwrap();
            fs::create_dir(root.join("t/empty")).unwrap();
            fs::write(root.join("t/one"), "first\n").unwrap();
            fs::write(root.join("t/a/two words"), "second\n").unwrap();
            fs::write(root.join("t/a/b/three"), "").unwrap();
            symlink("../a", root.join("t/a/up")).unwrap();
            symlink("one", root.join("t/link")).unwrap();
            common::tool("mkfifo", [root.join("t/fifo")]);
            fs::set_permissions(root.join("t/one"), Permissions::from_mode(0o750)).unwrap();
        })
    })
}

fn find(image: &Image, words: &[&str]) -> Output {
    let start = image.at("/t");
    dentree(["find", &start].iter().chain(words))
}

fn sorted(output: &Output) -> Vec<String> {
    let mut lines: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn commands_get_the_content_below_a_directory_that_is_removed() {
    let Some(image) = small() else { return };
    let temp = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_dentree"));
        let output =
            program.args(["find", &image.at("/t")]).args(words).env("TMPDIR", temp.path()).output().unwrap();
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0, "something is left: {words:?}");
        output
    };
    let each = run(&["-type", "f", "-print", "-exec", "cat", "{}", ";"]);
    assert_eq!(sorted(&each), ["/t/a/b/three", "/t/a/two words", "/t/one", "first", "second"]);
    // The path is printed before its command writes.
    assert!(text(&each.stdout).contains("/t/one\nfirst\n"), "{}", text(&each.stdout));
    let all = run(&["-type", "f", "-exec", "sh", "-c", "echo $#; cat \"$@\"", "sh", "{}", "+"]);
    assert_eq!(sorted(&all), ["3", "first", "second"]);
    let names = run(&["-type", "f", "-execdir", "echo", "{}", ";"]);
    assert_eq!(sorted(&names), ["./one", "./three", "./two words"]);
    let names = run(&["-path", "*/a/*", "-type", "f,l", "-execdir", "ls", "-d", "{}", "+"]);
    assert_eq!(sorted(&names), ["./three", "./two words", "./up"]);
    let path = text(&run(&["-name", "one", "-exec", "echo", "<{}>", ";"]).stdout);
    assert!(
        path.starts_with(&format!("<{}", temp.path().display())) && path.ends_with("/t/one>\n"),
        "{path}"
    );
    assert_eq!(sorted(&run(&["-type", "f", "-exec", "test", "-x", "{}", ";", "-print"])), ["/t/one"]);
    assert_eq!(sorted(&run(&["-type", "f", "-exec", "grep", "-q", "s", "{}", ";", "-print"])).len(), 2);
    // Changes of the copy are not those of the image.
    run(&["-name", "one", "-exec", "sh", "-c", "rm \"$0\"", "{}", ";"]);
    assert_eq!(common::succeeds(["cat", &image.at("/t/one")]), b"first\n");
}

#[test]
fn the_status_of_commands_counts_as_for_find_of_the_system() {
    let Some(image) = small() else { return };
    let code = |words: &[&str]| find(&image, words).status.code();
    assert_eq!(code(&["-name", "one", "-exec", "false", ";"]), Some(0));
    assert_eq!(code(&["-name", "one", "-exec", "false", "{}", "+"]), Some(1));
    assert_eq!(code(&["-name", "one", "-exec", "/nonexistent/x", ";"]), Some(0));
    assert_eq!(code(&["-name", "one", "-exec", "/nonexistent/x", "{}", "+"]), Some(1));
    let refused = find(&image, &["-type", "p", "-exec", "cat", "{}", ";"]);
    assert!(
        refused.status.code() == Some(1) && text(&refused.stderr).contains("-type"),
        "{}",
        text(&refused.stderr)
    );
}

#[test]
fn ok_asks_before_each_command() {
    let Some(image) = small() else { return };
    let mut child = Command::new(env!("CARGO_BIN_EXE_dentree"))
        .args(["find", &image.at("/t"), "--sort", "-type", "f", "-ok", "echo", "did", ";"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"y\nno\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), "did\n");
    assert_eq!(text(&output.stderr).matches(" ? ").count(), 3, "{}", text(&output.stderr));
}

#[test]
fn deleting_leaves_what_find_of_the_system_leaves() {
    let Some(image) = small() else { return };
    let copy = Image::new(8, &["-t", "ext4"]);
    fs::copy(&image.file, &copy.file).unwrap();
    // A directory that is not empty is told, and stays.
    let words = ["-name", "*e*", "-print", "-delete"];
    let ours = find(&image, &words);
    let theirs = {
        let mount = copy.mount("rw").unwrap();
        Command::new("find").arg(mount.at.join("t")).args(words).output().unwrap()
    };
    assert_eq!(ours.status.code(), theirs.status.code());
    common::assert_clean(&image.file);
    let left = |image: &Image| sorted(&find(image, &[]));
    assert_eq!(left(&image), left(&copy));
    assert!(find(&image, &["-name", "a", "-delete"]).status.code() == Some(1), "it is not empty");
    assert_eq!(find(&image, &["-delete"]).status.code(), Some(0));
    assert_eq!(find(&image, &[]).status.code(), Some(1), "the start is gone, too");
    common::assert_clean(&image.file);
}

#[test]
fn quit_ends_the_search_at_once() {
    let Some(image) = small() else { return };
    assert_eq!(sorted(&find(&image, &["-name", "*e*", "-print", "-quit", "-print"])).len(), 1);
    let both = dentree(["find", &image.at("/t"), &image.at("/t"), "-quit"]);
    assert_eq!((both.status.code(), both.stdout.len()), (Some(0), 0));
}

#[test]
fn links_that_lead_back_are_told_and_not_followed() {
    let Some(image) = small() else { return };
    let found = dentree(["find", "-L", &image.at("/t")]);
    assert_eq!(found.status.code(), Some(1));
    assert!(text(&found.stderr).contains("/t/a/up: the link leads to a directory above it"));
    assert_eq!(sorted(&found).len(), 9, "{:?}", sorted(&found));
}

#[test]
fn output_goes_to_local_files_and_starts_come_from_one() {
    let Some(image) = small() else { return };
    let dir = tempfile::tempdir().unwrap();
    let [list, starts] = ["list", "starts"].map(|name| dir.path().join(name));
    fs::write(&starts, format!("{}\0{}\0", image.at("/t/a"), image.at("/t/one"))).unwrap();
    let words = ["-files0-from", starts.to_str().unwrap(), "-type", "f"];
    let print =
        ["-fprint", list.to_str().unwrap(), "-name", "one", "-fprintf", list.to_str().unwrap(), "%s\\n"];
    assert_eq!(dentree(["find"].iter().chain(&words).chain(&print)).status.code(), Some(0));
    let written = fs::read_to_string(&list).unwrap();
    let mut lines: Vec<&str> = written.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["/t/a/b/three", "/t/a/two words", "/t/one", "6"]);
}

#[test]
fn wrong_expressions_end_with_1_and_one_line() {
    let Some(image) = small() else { return };
    let deep = vec!["("; 5000];
    for words in [
        &["-foo"][..],
        &["--name", "x"],
        &["("],
        &["(", ")"],
        &["-true", ")"],
        &["-name"],
        &["-name", "x", "-o"],
        &["-a"],
        &["!"],
        &["-print", "-o"],
        &["-print", ","],
        &["-print", "x"],
        &["-type", "x"],
        &["-type", "f,f"],
        &["-size", "big"],
        &["-perm", "9"],
        &["-perm", "+111"],
        &["-mtime", "x"],
        &["-user", "nobody-of-this-name"],
        &["-maxdepth", "-1"],
        &["-newermt", "nonsense"],
        &["-newerxy", "x"],
        &["-newer", "/nonexistent/x"],
        &["-exec", "true"],
        &["-exec", ";"],
        &["-exec", "echo", "{}", "{}", "+"],
        &["-regextype", "foo"],
        &["-regex", r"\("],
        &["-regex", r"\(a\)\1"],
        &["-printf", "%"],
        &["-prune", "-delete"],
        &deep,
    ] {
        let output = find(&image, words);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?} {told}");
        assert!(told.lines().count() == 1 && told.starts_with("dentree: "), "{words:?} {told}");
        assert!(output.stdout.is_empty(), "{words:?}");
    }
    assert_eq!(dentree(["find", "-name", "x"]).status.code(), Some(1));
}
