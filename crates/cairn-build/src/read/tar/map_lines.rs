//! [`MapLines`]: the map before the data of a sparse member (GNU's form 1.0): decimal lines, the
//! number of ranges first, then start and length of each.

use std::ops::Range;

use super::pax::{RANGES_MAX, decimal};

/// Most digits of a number.
const DIGITS: usize = 20;

/// A map, as far as it was read.
#[derive(Debug, Default)]
pub(super) struct MapLines {
    /// The line that the last block has begun.
    line: Vec<u8>,
    count: Option<usize>,
    start: Option<u64>,
    map: Vec<Range<u64>>,
}

impl MapLines {
    /// Adds a block. Returns the map when it is whole.
    ///
    /// # Errors
    /// It is damaged, or has too many ranges.
    pub(super) fn add(&mut self, block: &[u8]) -> Result<Option<Vec<Range<u64>>>, String> {
        for byte in block {
            if *byte != b'\n' {
                self.line.push(*byte);
                if self.line.len() > DIGITS {
                    return Err("damaged sparse map".into());
                }
                continue;
            }
            let number = decimal(&self.line).ok_or("damaged sparse map")?;
            self.line.clear();
            self.number(number)?;
            if self.count == Some(self.map.len()) {
                return Ok(Some(std::mem::take(&mut self.map)));
            }
        }
        Ok(None)
    }

    fn number(&mut self, number: u64) -> Result<(), String> {
        match (self.count, self.start.take()) {
            (None, _) => {
                let count = usize::try_from(number).ok().filter(|count| *count <= RANGES_MAX);
                self.count = Some(count.ok_or_else(|| {
                    format!("a sparse map of {number} ranges, where {RANGES_MAX} are possible")
                })?);
            }
            (_, None) => self.start = Some(number),
            (_, Some(start)) => {
                let end = start.checked_add(number).ok_or("the sparse map leads beyond 2^64")?;
                self.map.push(start..end);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_may_end_in_a_number() {
        for at in 0..=12 {
            let mut lines = MapLines::default();
            let (first, second) = b"2\n5\n10\n30\n4\n".split_at(at);
            let done = lines.add(first).unwrap();
            let map = done.or_else(|| lines.add(second).unwrap());
            assert_eq!(map, Some(vec![5..15, 30..34]), "{at}");
        }
    }

    #[test]
    fn damaged_maps() {
        for map in [&b"x\n"[..], b"2000000\n", b"1\n1\n18446744073709551615\n", b"\n", &[b'1'; 40]]
        {
            assert!(MapLines::default().add(map).is_err(), "{}", map.escape_ascii());
        }
        assert_eq!(MapLines::default().add(b"0\n"), Ok(Some(vec![])));
    }
}
