//! Records a command with strace.
//!
//! strace names the file of every descriptor (`-y`), which resolves relative paths and shows the
//! working directory. Recordings do not describe the machine: paths of the project are relative to
//! it, the system's (`/usr`, `/etc`, …) are kept, and other names are numbered.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, ExitStatus};

use super::recording::{Operation, PathId, ROOT, Recording};
use crate::unavailable::Unavailable;

/// Runs a command and its children to the end under strace; returns their operations on names, and
/// the exit status. The project is the command's working directory.
///
/// # Errors
/// If strace is missing or may not trace.
pub fn record(command: &[OsString], project: &Path) -> Result<(Recording, ExitStatus), Unavailable> {
    let because = |why: std::io::Error| Unavailable::because("strace (Debian's package strace has it)", why);
    let project = project.canonicalize().map_err(because)?;
    let folder = tempfile::tempdir().map_err(because)?;
    let log = folder.path().join("trace");
    let status = Command::new("strace")
        .args([
            "-f",
            "-y",
            "-qq",
            "-s",
            "4096",
            "-e",
            "trace=%file,%process,fchdir",
            "-e",
            "signal=none",
            "-o",
        ])
        .arg(&log)
        .arg("--")
        .args(command)
        .current_dir(&project)
        .status()
        .map_err(because)?;
    let text = std::fs::read(&log).map_err(because)?;
    let recording = parse(&String::from_utf8_lossy(&text), project.as_os_str().as_bytes());
    if recording.operations().is_empty() {
        return Err(Unavailable::because("strace", format!("nothing was traced; it ended with {status}")));
    }
    Ok((recording, status))
}

/// The operations in strace's output, of a command that ran in the directory `project`.
fn parse(text: &str, project: &[u8]) -> Recording {
    let mut tracer = Tracer {
        recording: Recording::default(),
        project: components(project),
        elsewhere: HashMap::new(),
        folders: HashMap::new(),
        unfinished: HashMap::new(),
        forking: project.to_vec(),
    };
    for line in text.lines() {
        let Some((pid, rest)) = line.trim_start().split_once(' ') else { continue };
        tracer.line(pid, rest.trim_start());
    }
    tracer.recording
}

struct Tracer<'t> {
    recording: Recording,
    project: Vec<Vec<u8>>,
    /// Numbers in place of names outside project and system.
    elsewhere: HashMap<Vec<u8>, usize>,
    /// Working directories by process.
    folders: HashMap<&'t str, Vec<u8>>,
    unfinished: HashMap<&'t str, &'t str>,
    /// The working directory of the last process that forked: the new process's.
    forking: Vec<u8>,
}

impl<'t> Tracer<'t> {
    fn line(&mut self, pid: &'t str, line: &'t str) {
        if let Some(begin) = line.strip_suffix(" <unfinished ...>") {
            if is_fork(begin) {
                self.forking = self.folder(pid);
            }
            self.unfinished.insert(pid, begin);
        } else if let Some((_, end)) =
            line.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>"))
        {
            let begin = self.unfinished.remove(pid).unwrap_or_default();
            self.call(pid, &format!("{begin}{end}"));
        } else {
            if is_fork(line) {
                self.forking = self.folder(pid);
            }
            self.call(pid, line);
        }
    }

    fn folder(&mut self, pid: &'t str) -> Vec<u8> {
        self.folders.entry(pid).or_insert_with(|| self.forking.clone()).clone()
    }

    fn call(&mut self, pid: &'t str, line: &str) {
        let Some((call, result)) = line.rsplit_once(" = ") else { return };
        let Some((name, arguments)) = call.trim_end().split_once('(') else { return };
        let arguments = split(arguments.strip_suffix(')').unwrap_or(arguments));
        let Some(outcome) = Outcome::of(result) else { return };
        if name == "fchdir" {
            if let (Outcome::Done, Some(folder)) = (outcome, arguments.first().and_then(|fd| annotated(fd))) {
                self.folders.insert(pid, folder);
            }
            return;
        }
        let mut files = self.files(pid, &arguments).into_iter();
        let last = if matches!(name, "symlink" | "symlinkat" | "link" | "linkat") {
            files.nth(1)
        } else {
            files.next()
        };
        let (Some(file), other) = (last, files.next()) else { return };
        if name == "chdir" && outcome == Outcome::Done {
            self.folders.insert(pid, file.clone());
        }
        let path = self.place(&file);
        let creates = arguments.iter().any(|argument| argument.contains("O_CREAT"));
        let operation = match (name, outcome) {
            ("open" | "openat" | "creat", Outcome::Done) if creates || name == "creat" => {
                Operation::Create(path)
            }
            ("open" | "openat" | "execve", _) => Operation::Open(path, outcome != Outcome::Missing),
            ("mkdir" | "mkdirat" | "symlink" | "symlinkat" | "link" | "linkat", Outcome::Done) => {
                Operation::Create(path)
            }
            ("unlink" | "unlinkat" | "rmdir", Outcome::Done) => Operation::Remove(path),
            ("rename" | "renameat" | "renameat2", Outcome::Done) => {
                let Some(to) = other else { return };
                Operation::Rename(path, self.place(&to))
            }
            _ => Operation::Stat(path, outcome != Outcome::Missing),
        };
        self.recording.push(operation);
    }

    /// The paths among the arguments of a call, absolute.
    fn files(&mut self, pid: &'t str, arguments: &[&str]) -> Vec<Vec<u8>> {
        let mut base = None;
        let mut files = Vec::new();
        for argument in arguments {
            if let Some(folder) = annotated(argument) {
                if argument.starts_with("AT_FDCWD") {
                    self.folders.insert(pid, folder.clone());
                }
                base = Some(folder);
            } else if let Some(file) = quoted(argument).filter(|file| !file.is_empty()) {
                let mut whole = base.take().unwrap_or_else(|| self.folder(pid));
                whole.push(b'/');
                files.push(if file[0] == b'/' { file } else { [whole, file].concat() });
            }
        }
        files
    }

    /// The number of an absolute path, under a name that does not describe the machine.
    fn place(&mut self, file: &[u8]) -> PathId {
        const KEPT: [&[u8]; 8] = [b"bin", b"dev", b"etc", b"lib", b"lib64", b"sbin", b"sys", b"usr"];
        let components = components(file);
        if let Some(below) = components.strip_prefix(&self.project[..]) {
            let project = self.recording.path(ROOT, b"project");
            return below.iter().fold(project, |at, name| self.recording.path(at, name));
        }
        let kept = components.first().is_some_and(|first| KEPT.contains(&&first[..]));
        components.iter().fold(ROOT, |at, name| {
            if kept || (at == ROOT && (name == b"proc" || name == b"tmp")) {
                return self.recording.path(at, name);
            }
            let next = self.elsewhere.len();
            let number = *self.elsewhere.entry(name.clone()).or_insert(next);
            self.recording.path(at, format!("name{number}").as_bytes())
        })
    }
}

/// The result of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Done,
    /// The name does not exist.
    Missing,
    /// The name exists, but the call failed.
    Refused,
}

impl Outcome {
    /// `None` if the result shows nothing about the name.
    fn of(result: &str) -> Option<Self> {
        match result.strip_prefix("-1 ").map(|error| error.split(' ').next().unwrap_or_default()) {
            Some("ENOENT") => Some(Self::Missing),
            Some("EEXIST" | "EINVAL" | "EACCES" | "EPERM" | "EISDIR" | "ENOEXEC" | "ENOTEMPTY" | "EROFS") => {
                Some(Self::Refused)
            }
            None if !result.starts_with('?') => Some(Self::Done),
            _ => None,
        }
    }
}

fn is_fork(call: &str) -> bool {
    ["clone(", "clone3(", "fork(", "vfork("].iter().any(|name| call.starts_with(name))
}

/// Splits a call's arguments at commas outside strings and brackets.
fn split(arguments: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut depth, mut string, mut escaped) = (Vec::new(), 0, 0, false, false);
    for (at, byte) in arguments.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if string => escaped = true,
            b'"' => string = !string,
            _ if string => {}
            b'{' | b'[' | b'(' | b'<' => depth += 1,
            b'}' | b']' | b')' | b'>' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(arguments[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(arguments[begin..].trim());
    parts
}

/// The path of a descriptor: `3</usr/lib>`, `AT_FDCWD</tmp>`.
fn annotated(argument: &str) -> Option<Vec<u8>> {
    let (fd, path) = argument.strip_suffix('>')?.split_once('<')?;
    let is_fd = fd == "AT_FDCWD" || fd.bytes().all(|byte| byte.is_ascii_digit());
    (is_fd && path.starts_with('/')).then(|| path.as_bytes().to_vec())
}

/// The bytes of a string in strace's notation.
fn quoted(argument: &str) -> Option<Vec<u8>> {
    let text = argument.strip_prefix('"')?.strip_suffix('"')?;
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let digits = rest.iter().take(3).take_while(|digit| (b'0'..=b'7').contains(digit)).count();
        let (code, behind) = rest.split_at(digits.max(1).min(rest.len()));
        rest = behind;
        bytes.push(match code {
            [] => return None,
            b"n" => b'\n',
            b"t" => b'\t',
            b"r" => b'\r',
            _ if digits > 0 => code.iter().fold(0, |value: u8, digit| value.wrapping_mul(8) | (digit - b'0')),
            other => other[0],
        });
    }
    Some(bytes)
}

/// The components of an absolute path, with `.` and `..` resolved. A name that a recording cannot
/// hold ends the path.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let mut components: Vec<Vec<u8>> = Vec::new();
    for name in path.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => drop(components.pop()),
            _ if name.contains(&b'\n') || name.len() > 255 || std::str::from_utf8(name).is_err() => break,
            _ => components.push(name.to_vec()),
        }
    }
    components
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = r#"7 execve("/usr/bin/make", ["make"], 0x7ffe /* 35 vars */) = 0
7 access("/etc/ld.so.preload", R_OK) = -1 ENOENT (No such file or directory)
7 openat(AT_FDCWD</home/me/p>, "a,b\"\303\244.c", O_RDONLY|O_CLOEXEC) = 3</home/me/p/x>
7 newfstatat(3</home/me/p/x>, "", {st_mode=S_IFREG|0644, ...}, AT_EMPTY_PATH) = 0
7 vfork( <unfinished ...>
8 chdir("sub" <unfinished ...>
7 <... vfork resumed>)              = 8
8 <... chdir resumed>)                       = 0
8 openat(AT_FDCWD</home/me/p/sub>, "../a.o", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 3</home/me/p/a.o>
8 stat("b.h", 0x7ffc) = -1 ENOENT (No such file or directory)
8 rename("../a.o", "/home/me/secret.o") = 0
8 unlink("/tmp/ccGmtlxd.s") = 0
8 mkdir("/home/me", 0777) = -1 EEXIST (File exists)
8 stat("a.c/x", 0x7ffc) = -1 ENOTDIR (Not a directory)
8 exit_group(0)                     = ?
"#;

    #[test]
    fn lines_of_strace_become_operations_without_a_word_about_the_machine() {
        let text = parse(LINES, b"/home/me/p").text("test");
        for word in ["home", "me\n", "secret", "ccGm"] {
            assert!(!text.contains(word), "{word}: {text}");
        }
        let (paths, operations) = text.split_once("\n\n").unwrap();
        let paths: Vec<_> = paths.lines().skip(2).collect();
        assert_eq!(
            paths,
            [
                "0 usr",
                "1 bin",
                "2 make",
                "0 etc",
                "4 ld.so.preload",
                "0 project",
                "6 a,b\"ä.c",
                "6 sub",
                "6 a.o",
                "8 b.h",
                "0 name0",
                "11 name1",
                "12 name2",
                "0 tmp",
                "14 name3"
            ]
        );
        assert_eq!(operations, "o3 S5 o7 s8 c9 S10 r9,13 u15 s12\n");
    }

    #[test]
    fn a_command_is_recorded_with_what_it_did_not_find() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("there"), "").unwrap();
        let command = ["cat", "there", "not there"].map(OsString::from);
        match record(&command, folder.path()) {
            Err(why) => println!("skipped: {why}"),
            Ok((mut recording, status)) => {
                let project = recording.path(ROOT, b"project");
                let (there, not_there) =
                    (recording.path(project, b"there"), recording.path(project, b"not there"));
                assert!(recording.operations().contains(&Operation::Open(there, true)));
                assert!(recording.operations().contains(&Operation::Open(not_there, false)));
                assert_eq!(status.code(), Some(1));
            }
        }
    }
}
