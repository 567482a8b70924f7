//! Which clusters are in use: a bit for each, by group.

use dentree_ext4_format::Superblock;
use dentree_sync::Mutex;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Most clusters with several users that are reported.
const MOST_SHARED: usize = 10_000;

pub(super) struct Claims {
    groups: Box<[OnceLock<Box<[AtomicU64]>>]>,
    first_block: u64,
    log_ratio: u32,
    clusters_per_group: u64,
    /// Clusters that were claimed again.
    shared: Mutex<BTreeSet<u64>>,
}

impl Claims {
    pub(super) fn new(sb: &Superblock) -> Claims {
        Claims {
            groups: (0..sb.groups).map(|_| OnceLock::new()).collect(),
            first_block: u64::from(sb.first_data_block),
            log_ratio: sb.log_cluster_ratio,
            clusters_per_group: u64::from(sb.clusters_per_group()),
            shared: Mutex::default(),
        }
    }

    /// The cluster of a block.
    pub(super) fn cluster(&self, block: u64) -> u64 {
        block.saturating_sub(self.first_block) >> self.log_ratio
    }

    /// The clusters of a run of blocks.
    pub(super) fn clusters(&self, blocks: Range<u64>) -> Range<u64> {
        if blocks.is_empty() {
            return 0..0;
        }
        self.cluster(blocks.start)..self.cluster(blocks.end - 1) + 1
    }

    /// The blocks of a cluster.
    pub(super) fn blocks(&self, cluster: u64) -> Range<u64> {
        let start = self.first_block + (cluster << self.log_ratio);
        start..start + (1 << self.log_ratio)
    }

    fn words(&self, group: u64) -> Option<&[AtomicU64]> {
        let group = self.groups.get(usize::try_from(group).ok()?)?;
        let words = usize::try_from(self.clusters_per_group.div_ceil(64)).ok()?;
        Some(group.get_or_init(|| (0..words).map(|_| AtomicU64::new(0)).collect()))
    }

    /// Marks clusters as in use. Those that are already become shared.
    pub(super) fn claim(&self, clusters: Range<u64>) {
        let mut at = clusters.start;
        while at < clusters.end {
            let (group, bit) = (at / self.clusters_per_group, at % self.clusters_per_group);
            // To the end of the word, of the group and of the range.
            let len = (64 - bit % 64).min(self.clusters_per_group - bit).min(clusters.end - at);
            let Some(words) = self.words(group) else { return };
            let mask = (u64::MAX >> (64 - len)) << (bit % 64);
            let before = words[usize::try_from(bit / 64).unwrap_or(0)].fetch_or(mask, Relaxed);
            if before & mask != 0 {
                let again = (0..len).filter(|n| before >> (bit % 64 + n) & 1 == 1);
                self.share(again.map(|n| at + n));
            }
            at += len;
        }
    }

    fn share(&self, clusters: impl Iterator<Item = u64>) {
        let mut shared = self.shared.lock();
        for cluster in clusters {
            if shared.len() < MOST_SHARED {
                shared.insert(cluster);
            }
        }
    }

    pub(super) fn shared(&self) -> BTreeSet<u64> {
        self.shared.lock().clone()
    }

    /// The bits of a group, 64 at a time.
    pub(super) fn of_group(&self, group: usize) -> impl Iterator<Item = u64> {
        let words = self.groups.get(group).and_then(OnceLock::get);
        let stored = words.into_iter().flat_map(|words| words.iter().map(|word| word.load(Relaxed)));
        stored.chain(std::iter::repeat(0))
    }
}
