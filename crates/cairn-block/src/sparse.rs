//! Writes that leave long runs of zeros out.

use bytes::Bytes;

use crate::device::Request;

/// Runs of at least this many blocks of zeros are not written as data.
const ZERO_RUN: usize = 4;

/// Requests that write `bytes`, which are whole blocks, at `offset`. Long runs of zeros become holes
/// where the device can have some.
pub fn requests(bytes: &Bytes, offset: u64, block_size: usize, requests: &mut Vec<Request>) {
    let mut from = 0;
    let mut zeros = 0;
    let blocks = bytes.len() / block_size;
    let mut write = |from: usize, to: usize, zero: bool| {
        let at = offset + (from * block_size) as u64;
        if from == to {
        } else if zero {
            requests
                .push(Request::WriteZeroes { offset: at, len: ((to - from) * block_size) as u64 });
        } else {
            let bufs = vec![bytes.slice(from * block_size..to * block_size)];
            requests.push(Request::Write { offset: at, bufs });
        }
    };
    for (number, block) in bytes.chunks(block_size).enumerate() {
        if is_zero(block) {
            zeros += 1;
            continue;
        }
        if zeros >= ZERO_RUN {
            write(from, number - zeros, false);
            write(number - zeros, number, true);
            from = number;
        }
        zeros = 0;
    }
    let zeros = if zeros >= ZERO_RUN { zeros } else { 0 };
    write(from, blocks - zeros, false);
    write(blocks - zeros, blocks, true);
}

fn is_zero(block: &[u8]) -> bool {
    let (words, rest) = block.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_runs_of_zeros_are_left_out() {
        let blocks = [1_u8, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0];
        let bytes: Vec<u8> = blocks.iter().flat_map(|byte| [*byte; 8]).collect();
        let mut all = Vec::new();
        requests(&bytes.into(), 800, 8, &mut all);
        let shape = |request: &Request| match request {
            Request::Write { offset, bufs } => (*offset, bufs[0].len() as u64, true),
            Request::WriteZeroes { offset, len } => (*offset, *len, false),
            _ => panic!("another request"),
        };
        let all: Vec<_> = all.iter().map(shape).collect();
        assert_eq!(all, [(800, 40, true), (840, 32, false), (872, 8, true), (880, 40, false)]);
    }
}
