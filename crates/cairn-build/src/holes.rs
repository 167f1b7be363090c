//! Blocks of zeros, which need no place on a volume.

use std::ops::Range;

use crate::estimate::BLOCK;

/// Adds the ranges of blocks that are not zeros to `kept`. `bytes` are those at `at` of a file; a
/// block of the file that they do not fill counts, too.
pub(crate) fn keep(bytes: &[u8], at: u64, kept: &mut Vec<Range<u64>>) {
    let (mut rest, mut start) = (bytes, at);
    while !rest.is_empty() {
        let end = (start / BLOCK + 1).saturating_mul(BLOCK);
        let len = usize::try_from(end - start).unwrap_or(rest.len()).min(rest.len());
        let (block, behind) = rest.split_at(len);
        let end = start + len as u64;
        if block.iter().any(|byte| *byte != 0) {
            match kept.last_mut().filter(|last| last.end == start) {
                Some(last) => last.end = end,
                None => kept.push(start..end),
            }
        }
        (rest, start) = (behind, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_zeros_are_left_out() {
        let mut bytes = vec![0; 5 * 4096];
        bytes[4095] = 1;
        bytes[3 * 4096] = 1;
        let mut kept = Vec::new();
        keep(&bytes, 0, &mut kept);
        assert_eq!(kept, [0..4096, 12_288..16_384]);
        // From the middle of a block on.
        kept.clear();
        keep(&bytes[4000..], 4000, &mut kept);
        assert_eq!(kept, [4000..4096, 12_288..16_384]);
        keep(&[0; 10], 20_480, &mut kept);
        assert_eq!(kept.len(), 2);
    }
}
