//! Rows stream: the memory of a writer does not grow with them.

use dentree_table::{Columns, Row, RowFormat, Writer};
use dentree_vfs::{FileType, Ino};
use std::io;

/// Rows that a search hands over at once.
const PIECE: u64 = 512;

/// The peak of memory while `count` rows are written.
fn peak(format: RowFormat, count: u64) -> u64 {
    let row = |number: u64| {
        let path = format!("/some/directory/{}/a file with a name {number}", number / 100);
        Row::new("disk.img".into(), path.into_bytes(), Ino(number), FileType::Regular, None)
    };
    let memory = allocation_counter::measure(|| {
        let mut writer = Writer::new(format, Columns::default(), io::sink()).unwrap();
        for start in (0..count).step_by(PIECE as usize) {
            writer.push((start..start + PIECE).map(row).collect()).unwrap();
        }
        writer.finish().unwrap();
    });
    memory.bytes_max
}

#[test]
fn a_million_rows_take_no_more_memory_than_three_hundred_thousand() {
    for format in
        [RowFormat::Parquet, RowFormat::Arrow, RowFormat::ArrowStream, RowFormat::Csv, RowFormat::Json]
    {
        let (few, many) = (peak(format, 300 << 10), peak(format, 1_000_000));
        println!("{format:?}: {few} bytes, {many} bytes");
        assert!(many < few + (1 << 20), "{format:?}: {few} bytes, then {many}");
        assert!(many < 64 << 20, "{format:?}: {many} bytes");
    }
}
