//! Calls every operation of a salvage, and those of the other commands for damaged images.

use dentree_blockdev::BlockDevice;
use dentree_ext4::{
    CheckOptions, Ext4, FileExtent, Node, Options, Salvage, SalvageOptions, SalvagedEntry, Scope,
};
use dentree_vfs::{FileSystem, FileType, Ino};
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Limit of directories and files that are visited.
const VISITED_MAX: usize = 5000;
/// Limit of ranges of free blocks that are listed.
const RANGES_MAX: usize = 5000;

/// What came out of an image.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Salvaged {
    /// The path of each file that is there, with its content.
    pub files: Vec<(String, Vec<u8>)>,
    /// Bytes of content, of files that are too long to be kept, too.
    pub bytes: u64,
    /// Entries whose inode is gone.
    pub lost: usize,
    /// Files with parts missing.
    pub partial: usize,
}

/// Salvages all of a device.
pub fn everything(device: Arc<dyn BlockDevice>) -> Option<Salvaged> {
    let options = SalvageOptions { cache_bytes: 1 << 20, goes_on: &|_, _| true };
    let salvage = Salvage::open(device, &options).ok()?;
    salvage.notices().iter().for_each(|notice| assert!(!notice.to_string().is_empty()));
    let mut found = Salvaged::default();
    let mut queue = vec![(salvage.root(), String::new())];
    queue.extend(salvage.unplaced().take(VISITED_MAX).map(|entry| (entry, "lost+found/".to_owned())));
    let mut visited = 0;
    while let Some((entry, above)) = queue.pop() {
        visited += 1;
        if visited > VISITED_MAX {
            break;
        }
        let path = format!("{above}{}", entry.name.escape_ascii());
        for below in visit(&salvage, &entry, &path, &mut found) {
            queue.push((below, format!("{path}/")));
        }
    }
    found.files.sort();
    Some(found)
}

/// Visits an entry. Returns those below it.
fn visit(salvage: &Salvage, entry: &SalvagedEntry, path: &str, found: &mut Salvaged) -> Vec<SalvagedEntry> {
    const KEPT: usize = 1 << 20;
    let Some(inode) = salvage.inode(entry) else {
        let is_dir = salvage.is_directory_gone(entry.ino);
        found.lost += usize::from(!is_dir);
        return if is_dir { salvage.entries(entry.ino).0 } else { Vec::new() };
    };
    salvage.xattrs(&inode);
    match salvage.attr(&inode).kind {
        FileType::Directory => return salvage.entries(entry.ino).0,
        FileType::Symlink => drop(salvage.target(&inode)),
        FileType::Regular => {
            let mut content = Vec::new();
            let missing = salvage.content(&inode, |offset, bytes| {
                found.bytes += bytes.len() as u64;
                let (start, end) =
                    (usize::try_from(offset).unwrap(), usize::try_from(offset).unwrap() + bytes.len());
                if end <= KEPT {
                    content.resize(content.len().max(end), 0);
                    content[start..end].copy_from_slice(bytes);
                }
                Ok::<(), Infallible>(())
            });
            let Ok(missing) = missing;
            assert!(missing.ranges.is_sorted_by_key(|range| range.start));
            assert!(missing.ranges.iter().all(|range| range.start < range.end));
            found.partial += usize::from(!missing.is_nothing());
            found.files.push((path.to_owned(), content));
        }
        _ => {}
    }
    Vec::new()
}

/// Opens an image as the other commands for damaged images do, and calls what they call.
pub fn other_commands(device: Arc<dyn BlockDevice>) {
    let without_journal = Options { replay_journal: false, ..Options::default() };
    let opened =
        Ext4::open(device.clone(), Options::default()).or_else(|_| Ext4::open(device, without_journal));
    let Ok(fs) = opened else { return };
    let options = CheckOptions { scope: Scope::All, threads: 1, found: &|_| {}, progress: &|_| true };
    let _ = fs.check(&options);
    for deleted in fs.deleted().unwrap_or_default().iter().take(50) {
        let _ = fs.read_deleted(deleted, |_, _| Ok::<(), dentree_ext4::Error>(()));
    }
    let mut ranges = 0;
    if let Ok(layout) = fs.layout() {
        let _ = layout.free_extents(&mut |_| {
            ranges += 1;
            if ranges < RANGES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
    }
    let history = fs.history().ok().flatten();
    let inodes = (1..fs.superblock().inodes_count.min(200)).map(|ino| Ino(u64::from(ino)));
    for node in inodes.filter_map(|ino| fs.load(ino).ok()) {
        let _: Option<Vec<FileExtent>> = fs.file_extents(&node).ok();
        one_node(&fs, &node);
        if let Some(history) = &history {
            let ino = u32::try_from(fs.attr(&node).ino.0).unwrap();
            let _ = fs.inode_versions(history, dentree_ext4::InodeNumber(ino));
        }
    }
}

fn one_node(fs: &Ext4, node: &Node) {
    if fs.attr(node).is_dir() {
        let _ = fs.deleted_names(node);
    }
}
