//! The input of the targets with volumes: a base image, changes of it, and operations.
//!
//! A header of eight bytes, then records of sixteen. Every byte string is a valid input, so that a
//! mutation is never lost; what is missing reads as zeros. A record is a change, or, with the
//! highest bit of its first byte, an operation.

/// Bytes of the header.
pub(crate) const HEADER: usize = 8;
/// Bytes of a record.
pub(crate) const RECORD: usize = 16;
/// Records that are read.
const MOST: usize = 48;
/// This bit of a record's first byte makes it an operation.
const OPERATION: u8 = 0x80;
/// This bit makes the value of a change big-endian.
const BIG_ENDIAN: u8 = 0x40;

/// What an input says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Input {
    /// Which of the bases of a target.
    pub(crate) base: u8,
    /// If all its bits are set, checksums are left as they are.
    pub(crate) sealing: u8,
    /// How the volume is opened.
    pub(crate) options: u8,
    /// Which variant of the target.
    pub(crate) variant: u8,
    /// Seeds what is drawn.
    pub(crate) seed: u32,
    pub(crate) changes: Vec<Change>,
    pub(crate) operations: Vec<Operation>,
}

/// How a change gets its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Set,
    Add,
    Flip,
    /// From another place.
    Copy,
    Fill,
}

/// A change of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) kind: Kind,
    pub(crate) big_endian: bool,
    /// Bytes of the field, 1 to 8.
    pub(crate) width: usize,
    /// Which of the base's places.
    pub(crate) place: u16,
    /// Where in the block.
    pub(crate) offset: u16,
    /// Length of a fill or a copy; offset in the other place.
    pub(crate) more: u16,
    pub(crate) value: u64,
}

/// An operation on the open volume. What the numbers mean follows from its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) kind: u8,
    pub(crate) mode: u8,
    pub(crate) subject: u16,
    pub(crate) other: u16,
    pub(crate) len: u16,
    pub(crate) offset: u64,
}

fn word(bytes: &[u8; RECORD], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

impl Input {
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let mut header = [0; HEADER];
        let len = bytes.len().min(HEADER);
        header[..len].copy_from_slice(&bytes[..len]);
        let [base, sealing, options, variant, a, b, c, d] = header;
        let seed = u32::from_le_bytes([a, b, c, d]);
        let (changes, operations) = (Vec::new(), Vec::new());
        let mut input = Self { base, sealing, options, variant, seed, changes, operations };
        for piece in bytes[len..].chunks(RECORD).take(MOST) {
            let mut record = [0; RECORD];
            record[..piece.len()].copy_from_slice(piece);
            input.add(&record);
        }
        input
    }

    fn add(&mut self, record: &[u8; RECORD]) {
        let value = u64::from_le_bytes(std::array::from_fn(|at| record[8 + at]));
        if record[0] & OPERATION != 0 {
            self.operations.push(Operation {
                kind: record[0] & !OPERATION,
                mode: record[1],
                subject: word(record, 2),
                other: word(record, 4),
                len: word(record, 6),
                offset: value,
            });
            return;
        }
        let kind = match record[0] % 16 {
            0..8 => Kind::Set,
            8 | 9 => Kind::Add,
            10..13 => Kind::Flip,
            13 => Kind::Fill,
            _ => Kind::Copy,
        };
        self.changes.push(Change {
            kind,
            big_endian: record[0] & BIG_ENDIAN != 0,
            width: 1 << (record[1] % 4),
            place: word(record, 2),
            offset: word(record, 4),
            more: word(record, 6),
            value,
        });
    }

    /// Whether checksums are put right after the changes: in 255 of 256 inputs.
    pub(crate) fn seals(&self) -> bool {
        self.sealing != u8::MAX
    }
}

impl Change {
    /// Applies it to a block. `other` reads the block of another place.
    pub(crate) fn apply(&self, block: &mut [u8], other: impl FnOnce(u16) -> Vec<u8>) {
        let at = usize::from(self.offset) % block.len();
        let width = self.width.min(block.len() - at);
        let field = &mut block[at..at + width];
        match self.kind {
            Kind::Set => self.store(field, self.value),
            Kind::Add => {
                let value = self.load(field).wrapping_add(self.value);
                self.store(field, value);
            }
            Kind::Flip => field[0] ^= 1 << (self.value % 8),
            Kind::Fill => {
                let len = (usize::from(self.more) + 1).min(block.len() - at);
                block[at..at + len].fill(self.value as u8);
            }
            Kind::Copy => {
                let from = other(self.value as u16);
                let start = (self.value >> 16) as usize % from.len();
                let len = (usize::from(self.more) + 1).min(block.len() - at);
                let piece = &from[start..from.len().min(start + len)];
                block[at..at + piece.len()].copy_from_slice(piece);
            }
        }
    }

    fn load(&self, field: &[u8]) -> u64 {
        let add = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        match self.big_endian {
            true => field.iter().fold(0, add),
            false => field.iter().rev().fold(0, add),
        }
    }

    fn store(&self, field: &mut [u8], value: u64) {
        let len = field.len();
        field.copy_from_slice(&value.to_le_bytes()[..len]);
        if self.big_endian {
            field.reverse();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_string_is_an_input() {
        let bytes: Vec<u8> = (0..=255).cycle().take(3000).collect();
        for len in 0..bytes.len() {
            let input = Input::decode(&bytes[..len]);
            let records = len.saturating_sub(HEADER).div_ceil(RECORD).min(MOST);
            assert_eq!(input.changes.len() + input.operations.len(), records);
        }
    }

    #[test]
    fn changes_stay_within_the_block() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..10_000 {
            let bytes: Vec<u8> = (0..HEADER + RECORD).map(|_| random.u8(..)).collect();
            let mut block = vec![7; 1024];
            for change in Input::decode(&bytes).changes {
                change.apply(&mut block, |_| vec![9; 512]);
            }
        }
    }

    #[test]
    fn values_are_stored_in_both_orders() {
        let mut bytes = [0; HEADER + RECORD];
        bytes[HEADER + 1] = 2;
        bytes[HEADER + 8..HEADER + 12].copy_from_slice(&[1, 2, 3, 4]);
        let mut block = [0; 8];
        Input::decode(&bytes).changes[0].apply(&mut block, |_| Vec::new());
        assert_eq!(block, [1, 2, 3, 4, 0, 0, 0, 0]);
        bytes[HEADER] = BIG_ENDIAN | 8;
        Input::decode(&bytes).changes[0].apply(&mut block, |_| Vec::new());
        assert_eq!(block, [5, 5, 5, 5, 0, 0, 0, 0]);
    }
}
