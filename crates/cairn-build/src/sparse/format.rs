//! The header of a sparse image and those of its chunks, in little endian.

/// Bytes of the header, and of the header of a chunk.
pub(super) const HEADER: usize = 28;
pub(super) const CHUNK: usize = 12;
const MAGIC: u32 = 0xed26_ff3a;
const MAJOR: u16 = 1;
const RAW: u16 = 0xcac1;
const FILL: u16 = 0xcac2;
const DONT_CARE: u16 = 0xcac3;
const CRC: u16 = 0xcac4;
/// Largest header that is skipped over, and largest block.
const HEADER_MAX: u16 = 4096;
const BLOCK_MAX: u32 = 64 << 20;

/// The header of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Bytes of the header and of each chunk's, which may be larger than those that are known.
    pub(super) header_len: u16,
    pub(super) chunk_header_len: u16,
    /// Bytes of a block.
    pub(super) block: u32,
    /// Blocks of the image.
    pub(super) blocks: u32,
    pub(super) chunks: u32,
    /// CRC-32 of the image; 0 if there is none.
    pub(super) checksum: u32,
}

/// What a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Blocks as they are.
    Raw,
    /// Blocks that repeat four bytes, which follow.
    Fill,
    /// Blocks that can have any bytes.
    DontCare,
    /// The CRC-32 of the image up to here follows.
    Crc,
}

/// The header of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) kind: Kind,
    /// Blocks of the image.
    pub(super) blocks: u32,
    /// Bytes behind the header.
    pub(super) payload: u32,
}

/// True if the bytes begin a sparse image.
pub(super) fn is_sparse(start: &[u8]) -> bool {
    start.starts_with(&MAGIC.to_le_bytes())
}

/// Little-endian numbers of a header.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn half(&self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes(self.0.get(at..at.checked_add(2)?)?.try_into().ok()?))
    }

    fn word(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(self.0.get(at..at.checked_add(4)?)?.try_into().ok()?))
    }
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        for half in [MAJOR, 0, self.header_len, self.chunk_header_len] {
            bytes.extend(half.to_le_bytes());
        }
        for word in [self.block, self.blocks, self.chunks, self.checksum] {
            bytes.extend(word.to_le_bytes());
        }
        bytes
    }

    /// # Errors
    /// Why the bytes are no header.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        if !is_sparse(bytes) {
            return Err("is no sparse image of Android: its first bytes are others".into());
        }
        let numbers = Numbers(bytes);
        let short = || "its header is truncated".to_owned();
        let version = numbers.half(4).ok_or_else(short)?;
        if version != MAJOR {
            return Err(format!("version {version} of sparse images is not known, only {MAJOR}"));
        }
        let header = Self {
            header_len: numbers.half(8).ok_or_else(short)?,
            chunk_header_len: numbers.half(10).ok_or_else(short)?,
            block: numbers.word(12).ok_or_else(short)?,
            blocks: numbers.word(16).ok_or_else(short)?,
            chunks: numbers.word(20).ok_or_else(short)?,
            checksum: numbers.word(24).ok_or_else(short)?,
        };
        let (len, chunk) = (header.header_len, header.chunk_header_len);
        if !(HEADER as u16..=HEADER_MAX).contains(&len)
            || !(CHUNK as u16..=HEADER_MAX).contains(&chunk)
        {
            return Err(format!("headers of {len} and {chunk} bytes are not possible"));
        }
        if !header.block.is_multiple_of(4) || !(4..=BLOCK_MAX).contains(&header.block) {
            return Err(format!("blocks of {} bytes are not possible", header.block));
        }
        Ok(header)
    }

    /// Bytes of the image.
    pub(super) fn size(&self) -> u64 {
        u64::from(self.block) * u64::from(self.blocks)
    }
}

impl Chunk {
    /// The header of a chunk; `len` is that of the headers.
    ///
    /// # Errors
    /// The chunk has more bytes than a header can say.
    pub(super) fn encode(&self) -> Vec<u8> {
        let kind = match self.kind {
            Kind::Raw => RAW,
            Kind::Fill => FILL,
            Kind::DontCare => DONT_CARE,
            Kind::Crc => CRC,
        };
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend(0_u16.to_le_bytes());
        bytes.extend(self.blocks.to_le_bytes());
        bytes.extend((self.payload + CHUNK as u32).to_le_bytes());
        bytes
    }

    /// # Errors
    /// Why the bytes are no header of a chunk.
    pub(super) fn decode(bytes: &[u8], header: &Header) -> Result<Self, String> {
        let numbers = Numbers(bytes);
        let short = || "is truncated".to_owned();
        let kind = match numbers.half(0).ok_or_else(short)? {
            RAW => Kind::Raw,
            FILL => Kind::Fill,
            DONT_CARE => Kind::DontCare,
            CRC => Kind::Crc,
            other => return Err(format!("has the unknown type {other:#x}")),
        };
        let blocks = numbers.word(4).ok_or_else(short)?;
        let total = numbers.word(8).ok_or_else(short)?;
        let expected = u64::from(header.chunk_header_len)
            + match kind {
                Kind::Raw => u64::from(blocks) * u64::from(header.block),
                Kind::Fill | Kind::Crc => 4,
                Kind::DontCare => 0,
            };
        if u64::from(total) != expected {
            return Err(format!("has {total} bytes, but {blocks} blocks need {expected}"));
        }
        if kind == Kind::Crc && blocks != 0 {
            return Err(format!("is a checksum of {blocks} blocks"));
        }
        Ok(Self { kind, blocks, payload: total - u32::from(header.chunk_header_len) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive() {
        let header = Header {
            header_len: 28,
            chunk_header_len: 12,
            block: 4096,
            blocks: 7,
            chunks: 2,
            checksum: 9,
        };
        assert_eq!(header.encode().len(), HEADER);
        assert_eq!(Header::decode(&header.encode()), Ok(header));
        let chunk = Chunk { kind: Kind::Raw, blocks: 2, payload: 8192 };
        assert_eq!(chunk.encode().len(), CHUNK);
        assert_eq!(Chunk::decode(&chunk.encode(), &header), Ok(chunk));
        for len in 0..HEADER {
            assert!(Header::decode(&header.encode()[..len]).is_err(), "{len}");
        }
        let odd = Header { block: 6, ..header };
        assert!(Header::decode(&odd.encode()).is_err());
        let wrong = Chunk { blocks: 3, ..chunk };
        assert!(Chunk::decode(&wrong.encode(), &header).is_err());
    }
}
