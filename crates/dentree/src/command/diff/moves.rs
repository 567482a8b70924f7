//! Moves: the same inode under a path that one tree alone has, and under another of the other's.

use super::compare::Comparison;
use super::difference::{Change, Difference};
use crate::any_tree::Source;
use dentree_vfs::Ino;
use std::collections::HashMap;

impl<A: Source, B: Source> Comparison<'_, A, B> {
    /// Joins removals and additions of one inode to moves. The contents of a moved directory moved
    /// with it: only what differs among them is left. Expects and keeps the order of paths.
    pub(super) fn find_moves(&self, differences: Vec<Difference>) -> Vec<Difference> {
        let mut removed: HashMap<(Ino, u32), Vec<usize>> = HashMap::new();
        for (index, difference) in differences.iter().enumerate().rev() {
            if let (Change::Removed, Some(version)) = (&difference.change, difference.version) {
                removed.entry((version.ino, version.generation)).or_default().push(index);
            }
        }
        // By index: where an addition came from, and whether a removal is none.
        let mut origins: HashMap<usize, usize> = HashMap::new();
        let mut is_moved = vec![false; differences.len()];
        for (index, difference) in differences.iter().enumerate() {
            let (Change::Added, Some(version)) = (&difference.change, difference.version) else { continue };
            let names = removed.get_mut(&(version.ino, version.generation));
            if let Some(from) = names.and_then(Vec::pop) {
                origins.insert(index, from);
                is_moved[from] = true;
            }
        }
        let from_of = |index: &usize| origins.get(index).map(|&from| differences[from].path.clone());
        let moves: HashMap<Vec<u8>, Vec<u8>> = origins
            .keys()
            .filter_map(|index| Some((differences[*index].path.clone(), from_of(index)?)))
            .collect();
        let sources: Vec<_> = (0..differences.len()).map(|index| from_of(&index)).collect();
        let changed = differences.into_iter().zip(sources).zip(is_moved);
        let kept = changed.filter_map(|((difference, from), is_moved)| match from {
            Some(from) => self.moved(difference, from, &moves),
            None => Some(difference).filter(|_| !is_moved),
        });
        kept.collect()
    }

    /// A move; `None` for what moved with its directory and is otherwise unchanged.
    fn moved(
        &self,
        difference: Difference,
        from: Vec<u8>,
        moves: &HashMap<Vec<u8>, Vec<u8>>,
    ) -> Option<Difference> {
        let Difference { path, version, .. } = difference;
        let ino = version?.ino;
        let files = self.old.by_number(ino, &from).zip(self.new.by_number(ino, &path));
        let what = files.map(|(old, new)| self.changes(&old, &new, &path)).unwrap_or_default();
        let (parent, name) = split(&path);
        let (old_parent, old_name) = split(&from);
        let with_its_directory = name == old_name && moves.get(parent).is_some_and(|from| from == old_parent);
        let change = match with_its_directory {
            true if what.is_empty() => return None,
            true => Change::Changed(what),
            false => Change::Moved(from, what),
        };
        Some(Difference::new(path, change))
    }
}

/// Directory and name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let slash = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
    (&path[..slash], &path[slash..])
}
