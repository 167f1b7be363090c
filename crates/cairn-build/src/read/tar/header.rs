//! The 512 bytes before a member: ustar, GNU and the oldest form.

use std::ops::Range;

/// Bytes of a block.
pub(super) const BLOCK: usize = 512;

/// The header of a member. Texts end before their first NUL.
#[derive(Clone, Debug, Default)]
pub(super) struct Header {
    pub(super) path: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) kind: u8,
    pub(super) mode: u32,
    pub(super) uid: u64,
    pub(super) gid: u64,
    pub(super) size: u64,
    pub(super) mtime: i64,
    pub(super) device: (u32, u32),
    /// GNU's old form of a sparse file: its map, whether it goes on, and the real size.
    pub(super) sparse: Option<(Vec<Range<u64>>, bool, u64)>,
}

/// What a block is.
#[derive(Debug)]
pub(super) enum Decoded {
    /// A header.
    Header(Box<Header>),
    /// A block of zeros, which marks the end.
    Zeros,
}

/// True if the block is a header with a right checksum.
pub(super) fn is_header(block: &[u8]) -> bool {
    matches!(decode(block), Ok(Decoded::Header(_)))
}

fn field(block: &[u8], at: usize, len: usize) -> &[u8] {
    block.get(at..at.saturating_add(len)).unwrap_or_default()
}

fn text(block: &[u8], at: usize, len: usize) -> &[u8] {
    let field = field(block, at, len);
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    field.get(..end).unwrap_or_default()
}

/// A number: octal digits between spaces and NULs, or GNU's binary form.
fn number(bytes: &[u8], what: &str) -> Result<i64, String> {
    let wrong = || format!("damaged header: {what} is not a number");
    if let Some((first @ (0x80 | 0xff), rest)) = bytes.split_first().map(|(f, r)| (*f, r)) {
        let start = if first == 0xff { -1_i64 } else { 0 };
        return rest
            .iter()
            .try_fold(start, |value, byte| value.checked_mul(256)?.checked_add(i64::from(*byte)))
            .ok_or_else(wrong);
    }
    let digits = bytes.iter().copied().skip_while(|byte| *byte == b' ');
    let mut value = 0_i64;
    let mut ended = false;
    for byte in digits {
        match byte {
            b'0'..=b'7' if !ended => {
                value = value
                    .checked_mul(8)
                    .and_then(|value| value.checked_add(i64::from(byte - b'0')))
                    .ok_or_else(wrong)?;
            }
            b' ' | 0 => ended = true,
            _ if ended => {}
            _ => return Err(wrong()),
        }
    }
    Ok(value)
}

fn unsigned(bytes: &[u8], what: &str) -> Result<u64, String> {
    number(bytes, what)?.try_into().map_err(|_| format!("damaged header: {what} is negative"))
}

/// Adds all bytes, with spaces in place of the checksum itself.
fn checksums(block: &[u8]) -> (i64, i64) {
    let counted = |(at, byte): (usize, &u8)| if (148..156).contains(&at) { b' ' } else { *byte };
    let bytes = || block.iter().enumerate().map(counted);
    let signed = bytes().map(|byte| i64::from(i8::from_le_bytes([byte]))).sum();
    (bytes().map(i64::from).sum(), signed)
}

/// Decodes a block.
pub(super) fn decode(block: &[u8]) -> Result<Decoded, String> {
    if block.len() != BLOCK {
        return Err("the archive ends in the middle of a header".into());
    }
    if block.iter().all(|byte| *byte == 0) {
        return Ok(Decoded::Zeros);
    }
    let sum = number(field(block, 148, 8), "the checksum")?;
    let (unsigned_sum, signed_sum) = checksums(block);
    if sum != unsigned_sum && sum != signed_sum {
        return Err(format!("damaged header: its checksum is {unsigned_sum}, not {sum}"));
    }
    let mut header = Header {
        path: text(block, 0, 100).to_vec(),
        link: text(block, 157, 100).to_vec(),
        kind: block.get(156).copied().unwrap_or_default(),
        mode: u32::try_from(number(field(block, 100, 8), "the mode")? & 0o7777).unwrap_or(0),
        uid: unsigned(field(block, 108, 8), "the owner")?,
        gid: unsigned(field(block, 116, 8), "the group")?,
        size: unsigned(field(block, 124, 12), "the size")?,
        mtime: number(field(block, 136, 12), "the time")?,
        device: (0, 0),
        sparse: None,
    };
    if matches!(header.kind, b'3' | b'4') {
        let part = |at, what| {
            let number = unsigned(field(block, at, 8), what)?;
            u32::try_from(number).map_err(|_| format!("{what} {number} is not possible"))
        };
        header.device = (part(329, "the major number")?, part(337, "the minor number")?);
    }
    match field(block, 257, 8) {
        [b'u', b's', b't', b'a', b'r', 0, ..] => {
            let prefix = text(block, 345, 155);
            if !prefix.is_empty() {
                header.path = [prefix, b"/", &header.path].concat();
            }
        }
        b"ustar  \0" if header.kind == b'S' => {
            let map = sparse_entries(field(block, 386, 96))?;
            let goes_on = field(block, 482, 1).iter().any(|byte| *byte != 0);
            let size = unsigned(field(block, 483, 12), "the real size")?;
            header.sparse = Some((map, goes_on, size));
        }
        _ => {}
    }
    Ok(Decoded::Header(Box::new(header)))
}

/// Entries of GNU's old sparse map: offset and number of bytes, of 12 bytes each.
fn sparse_entries(bytes: &[u8]) -> Result<Vec<Range<u64>>, String> {
    let mut map = Vec::new();
    for entry in bytes.chunks_exact(24) {
        if entry.iter().all(|byte| *byte == 0) {
            break;
        }
        let start = unsigned(field(entry, 0, 12), "an offset of the sparse map")?;
        let len = unsigned(field(entry, 12, 12), "a length of the sparse map")?;
        let end = start.checked_add(len).ok_or("the sparse map leads beyond 2^64")?;
        map.push(start..end);
    }
    Ok(map)
}

/// A further block of GNU's old sparse map, and whether it goes on.
pub(super) fn more_sparse(block: &[u8]) -> Result<(Vec<Range<u64>>, bool), String> {
    let goes_on = field(block, 504, 1).iter().any(|byte| *byte != 0);
    Ok((sparse_entries(field(block, 0, 504))?, goes_on))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_both_forms() {
        assert_eq!(number(b"0000644\0", "x"), Ok(0o644));
        assert_eq!(number(b"  755 \0\0", "x"), Ok(0o755));
        assert_eq!(number(b"\0\0\0\0\0\0\0\0", "x"), Ok(0));
        assert_eq!(number(&[0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 1], "x"), Ok(0x0200_0001));
        assert_eq!(number(&[0xff; 12], "x"), Ok(-1));
        assert!(number(b"12x", "x").is_err() && unsigned(&[0xff; 8], "x").is_err());
        assert!(
            number(&[0x80, 0xff, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255], "x").is_err()
        );
    }
}
