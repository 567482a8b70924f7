//! `dentree find` beside find(1) on the kernel's mount of the same image.

mod common;

use common::{Image, Mount, can_mount, dentree, text};
use std::collections::HashSet;
use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
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
        forest.directories.iter().chain(&forest.files).map(inside).collect()
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
        let operators = ["-o", "-or", "-a", "-and", "", "", ",", "-o"];
        for part in 0..=self.dice.roll(4) {
            if part > 0 {
                match self.pick(&operators) {
                    "" => {}
                    // Without an action before it, the optimiser of findutils 4.9 may exchange the
                    // sides of a comma, and with them what the list is worth, or not end.
                    "," => words.extend(["-printf", "left %p\n", ","].map(str::to_owned)),
                    operator => words.push(operator.to_owned()),
                }
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
        let paths = ["*/a*", "*tree*/[a-m]*", "*/.*", "*/tree/?*/*", "*y/*", "*"];
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
            0 => words.extend([self.pick(&["-name", "-iname"]).into(), self.pick(&globs).into()]),
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

fn theirs(mount: &Mount, line: &[String]) -> Output {
    let at = mount.at.display().to_string();
    let words = line.iter().map(|word| word.strip_prefix('@').map_or(word.clone(), |path| at.clone() + path));
    Command::new("find").args(words).env("LC_ALL", "C.UTF-8").env("TZ", "UTC").output().unwrap()
}

fn ours(image: &Image, line: &[String]) -> Output {
    let words = line.iter().map(|word| word.strip_prefix('@').map_or(word.clone(), |path| image.at(path)));
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
