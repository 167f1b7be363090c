//! [`copy`]: copying into a reader's buffer.

/// The bits of an address that give the offset in its page.
const PAGE_MASK: usize = 4095;
/// Distances of a target behind its source, modulo a page, at which a long copy is slow.
const SLOW: std::ops::Range<usize> = 1..64;
/// Bytes of a piece that processors copy with plain loads and stores.
const PIECE: usize = 512;

/// Copies `from` to `to`, which has the same length.
///
/// If the target lies a few bytes behind the source modulo a page, the string instructions of long
/// copies treat each load as dependent on the store before it and become four times slower. This
/// case is common: slabs begin at a page, and large buffers of `malloc` begin 16 bytes into one.
/// Short pieces are not affected.
pub(super) fn copy(to: &mut [u8], from: &[u8]) {
    let distance = to.as_ptr().addr().wrapping_sub(from.as_ptr().addr()) & PAGE_MASK;
    if !SLOW.contains(&distance) {
        return to.copy_from_slice(from);
    }
    for (to, from) in to.chunks_mut(PIECE).zip(from.chunks(PIECE)) {
        to.copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_distance_and_length_is_copied_whole() {
        let source: Vec<u8> =
            (0..20_000_u32).map(|at| u8::try_from(at % 251).expect("a byte")).collect();
        let mut target = vec![0; 20_000];
        for shift in [0, 1, 16, 63, 64, 4095] {
            for len in [0, 1, 511, 512, 513, 4096, 9_999] {
                let begin =
                    source.as_ptr().addr().wrapping_sub(target.as_ptr().addr()).wrapping_add(shift)
                        & PAGE_MASK;
                target.fill(0);
                copy(&mut target[begin..begin + len], &source[..len]);
                assert!(target[begin..begin + len] == source[..len], "{len} bytes, {shift} behind");
                assert!(target[begin + len..].iter().all(|byte| *byte == 0));
            }
        }
    }
}
