//! Features of a new file system.

use super::MkfsError;
use dentree_ext4_format::{Compat, Incompat, RoCompat};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Feature {
    Compat(Compat),
    Incompat(Incompat),
    RoCompat(RoCompat),
}

const SUPPORTED: &[(&str, Feature)] = &[
    ("has_journal", Feature::Compat(Compat::HAS_JOURNAL)),
    ("ext_attr", Feature::Compat(Compat::EXT_ATTR)),
    ("resize_inode", Feature::Compat(Compat::RESIZE_INODE)),
    ("dir_index", Feature::Compat(Compat::DIR_INDEX)),
    ("orphan_file", Feature::Compat(Compat::ORPHAN_FILE)),
    ("filetype", Feature::Incompat(Incompat::FILETYPE)),
    ("extent", Feature::Incompat(Incompat::EXTENTS)),
    ("extents", Feature::Incompat(Incompat::EXTENTS)),
    ("64bit", Feature::Incompat(Incompat::BITS64)),
    ("flex_bg", Feature::Incompat(Incompat::FLEX_BG)),
    ("metadata_csum_seed", Feature::Incompat(Incompat::CSUM_SEED)),
    ("large_dir", Feature::Incompat(Incompat::LARGEDIR)),
    ("inline_data", Feature::Incompat(Incompat::INLINE_DATA)),
    ("sparse_super", Feature::RoCompat(RoCompat::SPARSE_SUPER)),
    ("large_file", Feature::RoCompat(RoCompat::LARGE_FILE)),
    ("huge_file", Feature::RoCompat(RoCompat::HUGE_FILE)),
    ("uninit_bg", Feature::RoCompat(RoCompat::GDT_CSUM)),
    ("dir_nlink", Feature::RoCompat(RoCompat::DIR_NLINK)),
    ("extra_isize", Feature::RoCompat(RoCompat::EXTRA_ISIZE)),
    ("metadata_csum", Feature::RoCompat(RoCompat::METADATA_CSUM)),
];

/// Features that only mke2fs supports.
const UNSUPPORTED: &[&str] = &[
    "bigalloc",
    "casefold",
    "dir_prealloc",
    "ea_inode",
    "encrypt",
    "fast_commit",
    "journal_dev",
    "meta_bg",
    "mmp",
    "project",
    "quota",
    "sparse_super2",
    "stable_inodes",
    "verity",
];

/// Pairs of feature and required feature.
const NEEDS: &[(&str, &str)] = &[
    ("64bit", "extent"),
    ("large_dir", "dir_index"),
    ("metadata_csum_seed", "metadata_csum"),
    ("orphan_file", "has_journal"),
    // The inode's file exceeds 2 GiB, and its blocks' order must not depend on the number of
    // backups.
    ("resize_inode", "large_file"),
    ("resize_inode", "sparse_super"),
];

/// Supported features with their dependencies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features {
    pub(super) compat: Compat,
    pub(super) incompat: Incompat,
    pub(super) ro_compat: RoCompat,
}

impl Features {
    const NONE: Features = Features { compat: Compat(0), incompat: Incompat(0), ro_compat: RoCompat(0) };

    const EXT2: &str = "ext_attr,resize_inode,dir_index,filetype,sparse_super,large_file";
    const EXT3: &str = "ext2,has_journal";
    const EXT4: &str = "ext3,extent,64bit,flex_bg,huge_file,dir_nlink,extra_isize,metadata_csum";

    /// The features of `mke2fs -t ext4` (version 1.47, Debian 12), changed by `list` in the syntax
    /// of `mke2fs -O`: comma-separated names, `^` removes one. `ext2`, `ext3` and `ext4` replace
    /// all before them by mke2fs's defaults for that type; `none` by nothing.
    ///
    /// # Errors
    /// Unknown or unsupported names, and missing dependencies.
    ///
    /// ```
    /// use dentree_ext4::mkfs::Features;
    ///
    /// let features = Features::parse("ext2,^resize_inode")?;
    /// assert_eq!(features.to_string(), "ext_attr dir_index filetype sparse_super large_file");
    /// assert!(Features::parse("quotas").is_err());
    /// # Ok::<(), dentree_ext4::mkfs::MkfsError>(())
    /// ```
    pub fn parse(list: &str) -> Result<Features, MkfsError> {
        let mut features = Features::default();
        for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            features = features.apply(word)?;
        }
        // CRC32c checksums replace the older ones.
        if features.has("metadata_csum") {
            features = features.with("uninit_bg", false)?;
        }
        for &(feature, needed) in NEEDS {
            if features.has(feature) && !features.has(needed) {
                return Err(MkfsError::Needs { feature, needed });
            }
        }
        Ok(features)
    }

    fn apply(self, word: &str) -> Result<Features, MkfsError> {
        match word {
            "none" => Ok(Features::NONE),
            "ext2" => Features::NONE.apply_all(Features::EXT2),
            "ext3" => Features::NONE.apply_all(Features::EXT3),
            "ext4" => Features::NONE.apply_all(Features::EXT4),
            _ => match word.strip_prefix('^') {
                Some(name) => self.with(name, false),
                None => self.with(word, true),
            },
        }
    }

    fn apply_all(self, list: &str) -> Result<Features, MkfsError> {
        list.split(',').try_fold(self, Features::apply)
    }

    fn with(mut self, name: &str, on: bool) -> Result<Features, MkfsError> {
        let Some((_, feature)) = SUPPORTED.iter().find(|(known, _)| *known == name) else {
            let name = name.to_owned();
            let known = UNSUPPORTED.contains(&name.as_str());
            return Err(if known {
                MkfsError::Unsupported { name }
            } else {
                MkfsError::UnknownFeature { name }
            });
        };
        let set = |bits: u32, flag: u32| if on { bits | flag } else { bits & !flag };
        match *feature {
            Feature::Compat(flag) => self.compat = Compat(set(self.compat.0, flag.0)),
            Feature::Incompat(flag) => self.incompat = Incompat(set(self.incompat.0, flag.0)),
            Feature::RoCompat(flag) => self.ro_compat = RoCompat(set(self.ro_compat.0, flag.0)),
        }
        Ok(self)
    }

    fn has(self, name: &str) -> bool {
        SUPPORTED.iter().any(|(known, feature)| {
            *known == name
                && match *feature {
                    Feature::Compat(flag) => self.compat.has(flag),
                    Feature::Incompat(flag) => self.incompat.has(flag),
                    Feature::RoCompat(flag) => self.ro_compat.has(flag),
                }
        })
    }

    pub(super) fn without_journal(self) -> Features {
        let gone = Compat(Compat::HAS_JOURNAL.0 | Compat::ORPHAN_FILE.0);
        Features { compat: self.compat.without(gone), ..self }
    }
}

impl Default for Features {
    /// Those of `mke2fs -t ext4`.
    fn default() -> Features {
        // A test parses this constant list.
        Features::NONE.apply_all(Features::EXT4).unwrap_or(Features::NONE)
    }
}

impl std::fmt::Display for Features {
    /// Prints the names as dumpe2fs does.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = [self.compat.names(), self.incompat.names(), self.ro_compat.names()].concat();
        f.write_str(&names.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> String {
        Features::parse(list).unwrap().to_string()
    }

    #[test]
    fn the_default_is_that_of_mke2fs() {
        let debian_12 = "has_journal ext_attr resize_inode dir_index filetype extent 64bit flex_bg sparse_super \
                         large_file huge_file dir_nlink extra_isize metadata_csum";
        assert_eq!(names(""), debian_12);
        assert_eq!(names("ext4"), debian_12);
    }

    #[test]
    fn a_list_is_read_from_left_to_right() {
        assert_eq!(
            names("ext3"),
            "has_journal ext_attr resize_inode dir_index filetype sparse_super large_file"
        );
        assert_eq!(names("none,filetype, extent"), "filetype extent");
        assert_eq!(names("ext2,has_journal,^has_journal"), names("ext2"));
        assert_eq!(names("metadata_csum,uninit_bg"), names(""));
    }

    #[test]
    fn unknown_unsupported_and_incomplete_features_are_named() {
        let says = |list: &str| Features::parse(list).unwrap_err().to_string();
        assert!(says("^quotas").contains("quotas"));
        assert!(says("bigalloc").contains("bigalloc"));
        assert_eq!(
            says("^has_journal,orphan_file"),
            "orphan_file needs has_journal: add it, or leave out orphan_file"
        );
        assert!(says("ext2,64bit").contains("extent"));
    }
}
