//! The anti-forensic splitter: a key spread over many stripes, all of which are needed.

use zeroize::Zeroizing;

use crate::hash::Hash;

/// Merges stripes of `len` bytes each; there is at least one.
pub(crate) fn merge(stripes: &[u8], len: usize, hash: Hash) -> Zeroizing<Vec<u8>> {
    let mut key = Zeroizing::new(vec![0; len]);
    let mut chunks = stripes.chunks_exact(len).peekable();
    while let Some(stripe) = chunks.next() {
        key.iter_mut().zip(stripe).for_each(|(byte, other)| *byte ^= other);
        if chunks.peek().is_some() {
            diffuse(&mut key, hash);
        }
    }
    key
}

/// Replaces each piece of a digest's length by the digest of its number and itself.
fn diffuse(key: &mut [u8], hash: Hash) {
    for (number, piece) in (0_u32..).zip(key.chunks_mut(hash.len())) {
        let digest = Zeroizing::new(hash.digest(&[&number.to_be_bytes(), piece]));
        piece.copy_from_slice(&digest[..piece.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_split_is_merged() {
        for (hash, len) in [(Hash::Sha1, 32), (Hash::Sha256, 64), (Hash::Sha512, 64)] {
            let key: Vec<u8> = (0..len as u8).collect();
            // All stripes but the last are arbitrary.
            let mut stripes: Vec<u8> = (0..len * 9).map(|at| (at * 7 % 251) as u8).collect();
            let mut state = vec![0; len];
            for stripe in stripes.chunks(len) {
                state.iter_mut().zip(stripe).for_each(|(byte, other)| *byte ^= other);
                diffuse(&mut state, hash);
            }
            stripes.extend(state.iter().zip(&key).map(|(one, other)| one ^ other));
            assert_eq!(*merge(&stripes, len, hash), key, "{hash:?}");
            stripes[0] ^= 1;
            assert_ne!(*merge(&stripes, len, hash), key);
        }
    }
}
