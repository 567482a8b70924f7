//! Power cuts while parameters change: the superblock has the old or the new ones, and e2fsck finds
//! nothing.

use crate::common::Image;
use crate::common::cuts::{Run, Work, check_all};
use dentree_blockdev::{BlockDevice, RecordingDevice};
use dentree_ext4::{Ext4, InodeTime, Tune, tune};
use std::fs;
use std::sync::Arc;

/// Parameters by recorded position.
struct Tuned(Vec<(usize, Parameters)>);

type Parameters = (Vec<u8>, u64);

fn parameters(fs: &Ext4) -> Parameters {
    let sb = fs.superblock();
    (sb.volume_name.clone(), sb.reserved_blocks_count)
}

impl Work for Tuned {
    fn compare(&self, fs: Ext4, cut: usize) -> Result<(), String> {
        let found = parameters(&fs);
        fs.close().map_err(|error| format!("closing: {error}"))?;
        // Acknowledged, or under way.
        let done = self.0.iter().take_while(|(position, _)| *position <= cut).count();
        let may_be: Vec<_> = self.0[done - 1..].iter().take(2).map(|(_, parameters)| parameters).collect();
        if may_be.contains(&&found) { Ok(()) } else { Err(format!("{found:?} is none of {may_be:?}")) }
    }
}

#[test]
fn after_a_power_cut_parameters_are_the_old_or_the_new_ones() {
    for options in ["-t ext4 -b 1024 -J size=1", "-t ext3 -b 1024 -J size=1", "-t ext4 -b 4096 -J size=4"] {
        let size = "36M";
        let image = fs::read(Image::new(options, size, |_| {}).path()).unwrap();
        let recorded = Arc::new(RecordingDevice::new(image));
        let device: Arc<dyn BlockDevice> = recorded.clone();
        let read = || parameters(&Ext4::open(device.clone(), Default::default()).unwrap());
        let mut states = vec![(0, read())];
        for number in 0..6_u64 {
            let label = format!("label {number}").into_bytes();
            let changes = [Tune::Label(label), Tune::ReservedBlocks(100 + number)];
            tune(&device, &changes, InodeTime::default()).unwrap();
            states.push((recorded.position(), read()));
        }
        let run = Run { what: options.to_owned(), recording: recorded.recording(), work: Tuned(states) };
        let (cuts, problems) = check_all(&run, 60, 1);
        println!("{options}: {cuts} power cuts");
        assert!(problems.is_empty(), "{}", problems.join("\n\n"));
    }
}
