//! The yardstick: a copy into memory that was touched before.

use std::hint::black_box;
use std::time::Instant;

use super::measure::{MIB, Sizes};

/// MiB/s of copying one block repeatedly into successive parts of a memory of the file's size.
pub(super) fn speed(block: usize, sizes: Sizes) -> f64 {
    let source = vec![0x11_u8; block];
    let mut memory = vec![0x22_u8; sizes.file as usize];
    let (mut copied, start) = (0_usize, Instant::now());
    loop {
        for place in memory.chunks_exact_mut(block) {
            place.copy_from_slice(black_box(&source));
            black_box(&place);
        }
        copied += memory.len() / block * block;
        let elapsed = start.elapsed();
        if elapsed >= sizes.time {
            return copied as f64 / MIB as f64 / elapsed.as_secs_f64();
        }
    }
}
