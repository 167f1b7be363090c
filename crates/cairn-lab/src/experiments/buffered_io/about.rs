//! What the page says of buffered I/O.

use super::subjects::{LARGE, PER_BLOCK};
use crate::about::Shape::{Arrow, Box, Text};
use crate::about::Tone::{Cost, New, Plain};
use crate::about::{About, Drawing, Proposed};
use crate::section::Section;

pub(super) const ABOUT: About = About {
    lines: [
        "Block by block, each 4 KiB of a read or a write needs a mapping call and a folio of its \
         own.",
        "With buffered_iomap one mapping call covers the whole extent.",
        "The bytes go to folios of up to 2 MiB, whose memory is recycled with its pages in place.",
        "Write-back maps the longest dirty extent and writes it in one batch.",
        "Data is written before the handle that maps it, so extents are never unwritten, and \
         commits do not wait for data.",
    ],
    drawing: Drawing {
        height: 20,
        shapes: &[
            Text(1, 2, "nobuffered_iomap: 1 MiB is 256 folios and 256 calls"),
            Box(1, 3, 3, 3, Cost, "4K"),
            Box(5, 3, 3, 3, Cost, "4K"),
            Box(9, 3, 3, 3, Cost, "4K"),
            Box(13, 3, 3, 3, Cost, "4K"),
            Text(18, 5, "… 252 more"),
            Arrow((2, 6), (2, 8)),
            Arrow((6, 6), (6, 8)),
            Arrow((10, 6), (10, 8)),
            Arrow((14, 6), (14, 8)),
            Box(1, 8, 28, 2, Plain, "map"),
            Text(50, 2, "buffered_iomap: one folio, one call"),
            Box(50, 3, 40, 3, New, "1 MiB"),
            Arrow((70, 6), (70, 8)),
            Box(50, 8, 40, 2, Plain, "map: an extent"),
            Arrow((70, 10), (70, 14)),
            Box(50, 14, 40, 3, New, "one batch to the device"),
        ],
    },
    proposal,
};

/// Table, row, and the proposal's MiB/s with large folios divided by those block by block.
const ROWS: [(&str, &str, f64); 14] = [
    ("reads", "hole 4K", 1.44),
    ("reads", "hole 64K", 1.73),
    ("reads", "hole 1M", 1.78),
    ("reads", "ramdisk 64K", 1.49),
    ("reads", "ramdisk 1M", 1.41),
    ("writes-cached", "cached append 4K", 1.05),
    ("writes-cached", "cached append 64K", 2.60),
    ("writes-cached", "cached append 1M", 2.87),
    ("writes-cached", "cached overwrite 1M", 2.66),
    ("writes-ramdisk", "ramdisk append write-back 4K", 0.85),
    ("writes-ramdisk", "ramdisk append write-back 64K", 2.89),
    ("writes-ramdisk", "ramdisk append write-back 1M", 2.73),
    ("writes-ramdisk", "ramdisk append sync 64K", 1.72),
    ("writes-ramdisk", "ramdisk overwrite sync 1M", 1.59),
];

fn proposal(sections: &[Section]) -> Vec<Proposed> {
    let ratio = |id: &str, row: &str| {
        let table = sections.iter().find(|section| section.id == id)?;
        table.ratio(row, "mib_per_s", LARGE, PER_BLOCK)
    };
    let rows = ROWS.map(|(id, row, proposed)| {
        Proposed::new(format!("{row}: large ÷ per-block"), proposed, ratio(id, row))
    });
    rows.into_iter().collect()
}
