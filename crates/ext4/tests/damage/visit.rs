//! Calls every operation on every inode.

use dentree_ext4::{Ext4, Node};
use dentree_vfs::{DirEntry, Error, Extent, FileSystem, FileType, Ino, ReaddirStart};
use std::collections::HashSet;
use std::ops::ControlFlow;

const ENTRIES_MAX: usize = 2000;
const LOOKUPS_MAX: usize = 80;
const EXTENTS_MAX: usize = 64;
const INODES_MAX: usize = 2000;
/// Bytes read at start, middle and end of a file.
const PIECE: usize = 2048;

#[derive(Default)]
pub struct Findings {
    /// What checksums protect: attributes, names, fast links' targets, extended attributes.
    pub facts: Vec<String>,
    pub errors: Vec<Error>,
}

impl Findings {
    fn note<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        result.map_err(|error| self.errors.push(error)).ok()
    }
}

pub fn everything(fs: &Ext4) -> Findings {
    let mut findings = Findings::default();
    let mut queue = vec![fs.root()];
    let mut seen: HashSet<Ino> = queue.iter().copied().collect();
    if let Some(counts) = findings.note(fs.statfs()) {
        findings.facts.push(format!("{counts:?}"));
    }
    while let Some(ino) = queue.pop() {
        for child in inode(fs, ino, &mut findings) {
            if seen.len() < INODES_MAX && seen.insert(child) {
                queue.push(child);
            }
        }
    }
    findings
}

/// Returns the inodes that it leads to.
fn inode(fs: &Ext4, ino: Ino, findings: &mut Findings) -> Vec<Ino> {
    let Some(node) = findings.note(fs.load(ino)) else { return Vec::new() };
    let attr = fs.attr(&node);
    assert!(fs.node_bytes(&node) < 1 << 20);
    findings.facts.push(format!("{attr:?}"));
    attributes(fs, &node, findings);
    match attr.kind {
        FileType::Directory => directory(fs, &node, findings),
        FileType::Regular => {
            file(fs, &node, findings);
            Vec::new()
        }
        FileType::Symlink => {
            if let Some(target) = findings.note(fs.readlink(&node)) {
                assert!(!target.is_empty() && !target.contains(&0));
                if attr.size < 60 {
                    findings.facts.push(format!("{ino:?} -> {}", target.escape_ascii()));
                }
            }
            Vec::new()
        }
        _ => {
            assert!(fs.read(&node, 0, &mut [0]).is_err(), "only files have content");
            Vec::new()
        }
    }
}

/// Also continues the listing from the middle.
pub fn directory(fs: &Ext4, node: &Node, findings: &mut Findings) -> Vec<Ino> {
    let mut entries = Vec::new();
    let listed = fs.readdir(node, ReaddirStart::First, &mut |entry| {
        assert!((1..=255).contains(&entry.name.len()));
        assert!(!entry.name.contains(&b'/') && !entry.name.contains(&0), "a name is one component of a path");
        entries.push((entry.name.to_vec(), entry.ino, entry.cookie));
        if entries.len() < ENTRIES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    findings.note(listed);
    let mut past = 0;
    let mut each = |entry: DirEntry<'_>| {
        assert!(!entry.name.contains(&b'/') && !entry.name.contains(&0), "a name is one component of a path");
        past += 1;
        if past < ENTRIES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let listed = fs.readdir_past_damage(node, &mut each, &mut |error| findings.errors.push(error));
    findings.note(listed);
    assert!(past >= entries.len(), "{past} of {}", entries.len());
    let facts = entries.iter().map(|(name, ino, _)| format!("{} {ino:?}", name.escape_ascii()));
    findings.facts.extend(facts);
    if let Some(parent) = findings.note(fs.parent(node)) {
        findings.facts.push(format!("parent {parent:?}"));
    }
    for (name, ino, _) in entries.iter().step_by(entries.len().div_ceil(LOOKUPS_MAX).max(1)) {
        if let Some(found) = findings.note(fs.lookup(node, name)) {
            findings.facts.push(format!("{} {ino:?} {:?}", name.escape_ascii(), found.map(|it| it.ino)));
        }
    }
    for absent in [&b"absent"[..], b"HELLO", &[0xff; 255], &[b'n'; 256]] {
        match fs.lookup(node, absent) {
            Err(Error::NameTooLong) => assert!(absent.len() > 255),
            result => drop(findings.note(result)),
        }
    }
    if let Some((.., cookie)) = entries.get(entries.len() / 2) {
        let mut behind = 0;
        let listed = fs.readdir(node, ReaddirStart::After(*cookie), &mut |entry| {
            behind += 1;
            assert_ne!(entry.cookie, *cookie, "a listing goes on behind its cookie");
            if behind < ENTRIES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        findings.note(listed);
    }
    entries.into_iter().map(|(_, ino, _)| ino).collect()
}

pub fn file(fs: &Ext4, node: &Node, findings: &mut Findings) {
    let size = fs.attr(node).size;
    let mut piece = [0; PIECE];
    for offset in [0, size / 2, size.saturating_sub(PIECE as u64 / 2), size, u64::MAX - 1] {
        match fs.read(node, offset, &mut piece) {
            Err(Error::Encrypted) => return,
            result => {
                if let Some(len) = findings.note(result) {
                    assert_eq!(len as u64, size.saturating_sub(offset).min(PIECE as u64));
                }
            }
        }
    }
    let mut offset = 0;
    for _ in 0..EXTENTS_MAX {
        match fs.extent(node, offset) {
            Err(Error::NoExtent) => {
                assert!(offset >= size);
                return;
            }
            result => match findings.note(result) {
                Some(extent @ (Extent::Data(end) | Extent::Hole(end))) => {
                    assert!(offset < end && end <= size, "{offset} {extent:?} of {size}");
                    findings.facts.push(format!("{offset} {extent:?}"));
                    offset = end;
                }
                None => return,
            },
        }
    }
}

pub fn attributes(fs: &Ext4, node: &Node, findings: &mut Findings) {
    for name in findings.note(fs.listxattr(node)).unwrap_or_default() {
        if let Some(value) = findings.note(fs.getxattr(node, &name)) {
            findings.facts.push(format!("{} {:?}", name.escape_ascii(), value.map(|it| it.len())));
        }
    }
    findings.note(fs.getxattr(node, b"user.absent"));
    findings.note(fs.getxattr(node, b"no namespace"));
}
