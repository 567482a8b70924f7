//! The kernel's tools read what is written, and `e2fsck` finds nothing.

use crate::common::Image;
use crate::common::writing::{Dice, KINDS, check, node, open, read_all};
use dentree_ext4::{Ext4, Node};
use dentree_vfs::{Allocate, Durability, Error, Extent, FileSystem, SetAttr};

#[test]
fn written_files_are_read_by_the_kernels_tools() {
    for (options, size) in KINDS {
        let image = Image::new(options, size, |tree| std::fs::write(tree.join("file"), "x").unwrap());
        let fs = open(&image);
        let file = node(&fs, "file");
        let content: Vec<u8> = (0..3_000_000_u32).map(|n| (n / 7) as u8).collect();
        assert_eq!(fs.write(&file, 0, &content).unwrap(), content.len());
        assert!(
            fs.attr(&file).blocks * 512 >= 3_000_000,
            "{options}: content in memory counts as space, too"
        );
        assert_eq!(read_all(&fs, &file), content);
        fs.fsync(&file, Durability::Full).unwrap();
        assert_eq!(read_all(&fs, &file), content);
        assert_eq!(fs.append(&file, b"end").unwrap(), (3_000_000, 3));
        fs.close().unwrap();
        let content = [&content[..], b"end"].concat();
        check(&image, &[("file", &content)], options);
        image.agrees_with_the_kernel();
    }
}

struct Pair {
    node: Node,
    content: Vec<u8>,
}

impl Pair {
    fn put(&mut self, at: usize, data: &[u8]) {
        if self.content.len() < at + data.len() {
            self.content.resize(at + data.len(), 0);
        }
        self.content[at..at + data.len()].copy_from_slice(data);
    }

    fn zero(&mut self, at: usize, end: usize) {
        let len = self.content.len();
        self.content[at.min(len)..end.min(len)].fill(0);
    }

    fn step(&mut self, fs: &Ext4, dice: &mut Dice) {
        let most = if dice.roll(10) == 0 { 600_000 } else { 9000 };
        let (at, len) = (dice.roll(400_000), 1 + dice.roll(most));
        let (offset, count) = (u64::try_from(at).unwrap(), u64::try_from(len).unwrap());
        let data = vec![1 + u8::try_from(dice.roll(255)).unwrap(); len];
        match dice.roll(12) {
            0..=3 => {
                assert_eq!(fs.write(&self.node, offset, &data).unwrap(), len);
                self.put(at, &data);
            }
            4 => {
                let end = self.content.len();
                assert_eq!(fs.append(&self.node, &data).unwrap(), (u64::try_from(end).unwrap(), len));
                self.put(end, &data);
            }
            5 => {
                fs.set_attr(&self.node, &SetAttr { size: Some(offset), ..SetAttr::default() }).unwrap();
                self.content.resize(at, 0);
            }
            6 => {
                fs.allocate(&self.node, offset, count, Allocate::PunchHole).unwrap();
                self.zero(at, at + len);
            }
            how @ 7..=10 => self.allocate(fs, at, len, how),
            _ => fs.fsync(&self.node, Durability::Full).unwrap(),
        }
        assert_eq!(fs.attr(&self.node).size, u64::try_from(self.content.len()).unwrap());
        self.compare(fs, at, len);
    }

    fn allocate(&mut self, fs: &Ext4, at: usize, len: usize, how: usize) {
        let hows =
            [Allocate::Reserve, Allocate::ReserveKeepSize, Allocate::ZeroRange, Allocate::ZeroRangeKeepSize];
        let how = hows[how - 7];
        match fs.allocate(&self.node, u64::try_from(at).unwrap(), u64::try_from(len).unwrap(), how) {
            Err(Error::Unsupported(_)) => return,
            outcome => outcome.unwrap(),
        }
        if matches!(how, Allocate::ZeroRange | Allocate::ZeroRangeKeepSize) {
            self.zero(at, at + len);
        }
        if matches!(how, Allocate::ZeroRange | Allocate::Reserve) && self.content.len() < at + len {
            self.content.resize(at + len, 0);
        }
    }

    fn compare(&self, fs: &Ext4, at: usize, len: usize) {
        let from = at.saturating_sub(5000);
        let mut read = vec![0xEE; len + 10_000];
        let count = fs.read(&self.node, u64::try_from(from).unwrap(), &mut read).unwrap();
        let must = self.content.get(from..).unwrap_or_default();
        assert!(read[..count] == must[..must.len().min(read.len())], "content differs around {at}");
    }

    /// Holes read as zeros, and runs cover the file.
    fn check_extents(&self, fs: &Ext4) {
        let (mut at, size) = (0, u64::try_from(self.content.len()).unwrap());
        while at < size {
            let end = match fs.extent(&self.node, at).unwrap() {
                Extent::Data(end) => end,
                Extent::Hole(end) => {
                    let hole = usize::try_from(at).unwrap()..usize::try_from(end).unwrap();
                    assert!(self.content[hole].iter().all(|&byte| byte == 0));
                    end
                }
            };
            assert!(end > at && end <= size);
            at = end;
        }
        assert!(fs.extent(&self.node, size).is_err());
    }
}

#[test]
fn random_changes_of_two_files_match_memory() {
    for (options, size) in KINDS {
        for seed in 1..=3 {
            let what = format!("{options}, seed {seed}");
            let image = Image::new(options, size, |tree| {
                std::fs::write(tree.join("one"), "one").unwrap();
                std::fs::write(tree.join("two"), vec![7; 50_000]).unwrap();
            });
            let fs = open(&image);
            let mut dice = Dice(0x9E37_79B9_7F4A_7C15 ^ seed);
            let mut pairs = ["one", "two"].map(|name| {
                let node = node(&fs, name);
                Pair { content: read_all(&fs, &node), node }
            });
            for _ in 0..120 {
                pairs[dice.roll(2)].step(&fs, &mut dice);
            }
            for pair in &pairs {
                assert!(read_all(&fs, &pair.node) == pair.content, "{what}: content differs");
                pair.check_extents(&fs);
            }
            fs.close().unwrap();
            check(&image, &[("one", &pairs[0].content), ("two", &pairs[1].content)], &what);
        }
    }
}
