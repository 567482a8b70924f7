//! The names of a leaf in a listing.

use dentree_ext4_format::Entry;
use dentree_ext4_format::hash::NameHash;
use std::ops::Range;

/// Sorts by index hash, then second hash, then name.
#[derive(Default)]
pub(super) struct HashOrder {
    hashes: Range<u32>,
    /// Index hash (upper half) and number (lower half).
    pub(super) keys: Vec<u64>,
    /// Second hash by entry number.
    pub(super) lows: Vec<u32>,
    pub(super) digests: Vec<NameHash>,
    sorted: Vec<u64>,
}

const BUCKETS: usize = 256;
/// Fewer are sorted directly; so are all if a bucket would hold more.
const BUCKET_MAX: u16 = 16;

impl HashOrder {
    pub(super) fn restart(&mut self, hashes: Range<u32>) -> &mut HashOrder {
        self.keys.clear();
        self.lows.clear();
        self.hashes = hashes;
        self
    }

    #[inline]
    pub(super) fn add(&mut self, major: u32, low: u32) {
        let last = self.hashes.end.saturating_sub(2).max(self.hashes.start);
        self.keys.push(u64::from(major.clamp(self.hashes.start, last)) << 32 | self.lows.len() as u64);
        self.lows.push(low);
    }

    pub(super) fn sort(&mut self, entries: &[Entry<'_>]) {
        if !self.bucket_sort() {
            self.keys.sort_unstable();
        }
        let HashOrder { keys, lows, .. } = self;
        let share = |keys: &[u64; 2]| keys[0] >> 32 == keys[1] >> 32;
        if !keys.array_windows().fold(false, |any, keys| any | share(keys)) {
            return;
        }
        for same in keys.chunk_by_mut(|&key, &next| share(&[key, next])).filter(|same| same.len() > 1) {
            let name = |at: usize| entries.get(at).map(|entry| entry.name);
            same.sort_unstable_by_key(|&key| {
                let (_, at) = major_and_number(key);
                (lows.get(at).copied(), name(at), at)
            });
        }
    }

    /// Half the time of a comparison sort, as hashes are nearly random. `false` if a bucket would
    /// overflow, as an adversary may choose the names.
    fn bucket_sort(&mut self) -> bool {
        let HashOrder { hashes, keys, sorted, .. } = self;
        if !(usize::from(BUCKET_MAX)..BUCKETS * usize::from(BUCKET_MAX)).contains(&keys.len()) {
            return false;
        }
        let width = u64::from(hashes.end.saturating_sub(hashes.start).max(1));
        let (least, scale) = (u64::from(hashes.start), ((BUCKETS as u64) << 32) / width);
        let bucket_of = |key: u64| ((((key >> 32) - least) * scale) >> 32) as usize % BUCKETS;
        let mut ends = [0_u16; BUCKETS];
        keys.iter().for_each(|&key| ends[bucket_of(key)] += 1);
        if ends.iter().any(|&count| count > BUCKET_MAX) {
            return false;
        }
        let mut end = 0;
        for count in &mut ends {
            end += *count;
            *count = end;
        }
        sorted.clear();
        sorted.resize(keys.len(), 0);
        for &key in &*keys {
            let end = &mut ends[bucket_of(key)];
            *end -= 1;
            if let Some(place) = sorted.get_mut(usize::from(*end)) {
                *place = key;
            }
        }
        insertion_sort(sorted);
        std::mem::swap(keys, sorted);
        true
    }
}

/// Keys are close to their places.
fn insertion_sort(keys: &mut [u64]) {
    for at in 1..keys.len() {
        let key = keys[at];
        let mut to = at;
        while to > 0 && keys[to - 1] > key {
            keys[to] = keys[to - 1];
            to -= 1;
        }
        keys[to] = key;
    }
}

pub(super) fn major_and_number(key: u64) -> (u32, usize) {
    ((key >> 32) as u32, (key & u64::from(u32::MAX)) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(hashes: Range<u32>, majors: impl Iterator<Item = u32>) -> HashOrder {
        let mut order = HashOrder::default();
        order.restart(hashes);
        majors.for_each(|major| order.add(major, 1));
        order
    }

    fn numbers() -> impl Iterator<Item = u32> {
        (1_u32..).map(|n| n.wrapping_mul(0x9E37_79B9).rotate_left(15).wrapping_mul(0x85EB_CA6B))
    }

    #[test]
    fn keys_come_into_the_order_of_their_numbers_however_the_hashes_lie_in_their_range() {
        let mut hashes = numbers();
        for count in (0..1000).step_by(7).chain([5000]) {
            let ends = [hashes.next().unwrap(), hashes.next().unwrap()];
            let ranges = [0..u32::MAX, ends[0]..ends[1], 4..4, 4..5, u32::MAX - 1000..u32::MAX];
            for range in ranges {
                for narrower in [0, 8, 20, 28] {
                    let majors = numbers().map(|n| range.start.wrapping_add(n >> narrower)).take(count);
                    let mut order = order(range.clone(), majors);
                    let mut expected = order.keys.clone();
                    expected.sort_unstable();
                    order.sort(&[]);
                    assert_eq!(order.keys, expected, "{count} in {range:?}, narrower by 2^{narrower}");
                }
            }
        }
    }

    #[test]
    fn keys_are_spread_unless_they_come_together() {
        assert!(order(0..u32::MAX, numbers().take(200)).bucket_sort());
        assert!(order(1 << 30..1 << 31, numbers().map(|n| n >> 2 | 1 << 30).take(100)).bucket_sort());
        assert!(!order(0..u32::MAX, 0..200).bucket_sort());
    }
}
