//! `--stats`: figures of caches and device.

use crate::image::{Image, Session};
use crate::output::human;
use crate::pressure::Shrinks;
use crate::report;
use dentree_blockdev::{BlockDevice, DeviceCounts, Transfers};
use dentree_vfs::{Fallback, NameStats};

pub(crate) fn print(session: &Session) {
    for image in session.images() {
        report::print(format_args!("{}", image.at(b"")));
        let pressure = image.shrinks.get().map(|shrinks| ("pressure", pressure(&shrinks)));
        let network = image.device.transfers().map(|transfers| ("network", network(&transfers)));
        let served = image.served.get().map(|served| ("mount", served.clone()));
        for (what, figures) in figures(&image).into_iter().chain(network).chain(pressure).chain(served) {
            report::print(format_args!("{what:>12}  {figures}"));
        }
    }
}

fn figures(image: &Image) -> [(&'static str, String); 7] {
    let stats = image.vfs.stats();
    let (names, inodes) = (&stats.names, stats.inodes);
    let blocks = image.vfs.fs().buffer_stats();
    let memory = format!(
        "{} for {} names ({} negative), {} for {} inodes, {} for blocks",
        human(names.memory.used as u64),
        names.entries,
        names.negatives,
        human(inodes.bytes),
        inodes.cached,
        human(blocks.resident_bytes)
    );
    [
        (
            "lookups",
            format!(
                "{} walks; components: {} without a lock, {} under their directory's lock",
                names.walks, names.components, names.locked_hits
            ),
        ),
        (
            "results",
            format!(
                "{} found, {} absent by a negative entry, {} absent from a complete directory",
                names.found, names.negative, names.complete_negative
            ),
        ),
        ("fallbacks", format!("{}; {} names looked up in the file system", fallbacks(names), names.fills)),
        ("inodes", format!("{} hits, {} loaded", inodes.hits, inodes.misses)),
        (
            "blocks",
            format!(
                "{} hits, {} misses, {} waits for another's read",
                blocks.hits, blocks.misses, blocks.waits
            ),
        ),
        ("device", device(&image.device.counts())),
        ("memory", memory),
    ]
}

/// Walks that left the lock-free path, by reason.
fn fallbacks(names: &NameStats) -> String {
    let word = |why| match why {
        Fallback::Miss => "not cached",
        Fallback::Detached => "below a detached directory",
        Fallback::Symlink => "symbolic link",
        Fallback::NotADirectory => "not a directory",
        Fallback::Denied => "permission",
        Fallback::Floor => "left the start",
        Fallback::NameTooLong => "name too long",
        Fallback::Busy => "changed meanwhile",
    };
    let counted = Fallback::ALL.into_iter().map(|why| (names.stopped_for(why), word(why)));
    let shown: Vec<String> =
        counted.filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    if shown.is_empty() { "none".into() } else { shown.join(", ") }
}

fn network(transfers: &Transfers) -> String {
    let Transfers { requests, fetched_bytes, cached_bytes, used_bytes, waits, waited, ahead } = *transfers;
    let wasted = (fetched_bytes + cached_bytes).saturating_sub(used_bytes);
    let [fetched, cached, wasted] = [fetched_bytes, cached_bytes, wasted].map(human);
    format!(
        "{requests} requests; {fetched} fetched, {cached} from the cache on disk, {wasted} of both not used; \
         {waits} reads waited {waited:.2?} in all, {ahead} were made ahead"
    )
}

fn pressure(shrinks: &Shrinks) -> String {
    let source = match &shrinks.source {
        Ok(path) => format!("by {}", path.display()),
        Err(why) => format!("not watched: {why}"),
    };
    let Shrinks { count, names, inodes, blocks, .. } = shrinks;
    let last = shrinks.last.map(|cause| format!("; last cause: {cause}")).unwrap_or_default();
    format!(
        "shrunk {count} times, {source}; {names} names, {inodes} inodes and {blocks} blocks dropped{last}"
    )
}

fn device(counts: &DeviceCounts) -> String {
    let mut text = format!("{} reads of {} in all", counts.total_reads(), human(counts.read_bytes));
    for (class, count) in counts.reads.iter().enumerate().filter(|(_, count)| **count > 0) {
        match DeviceCounts::class_limit(class) {
            Some(limit) => text += &format!("; {count} up to {}", human(limit)),
            None => text += &format!("; {count} larger"),
        }
    }
    if counts.total_writes() > 0 {
        let written = human(counts.written_bytes);
        text += &format!("; {} writes of {written}, {} flushes", counts.total_writes(), counts.flushes);
    }
    text
}
