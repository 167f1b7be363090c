//! LZO1X streams, with or without run lengths of zeros (LZO-RLE).
//!
//! Source: "LZO stream format as understood by Linux" (Documentation/staging/lzo.rst). A stream is
//! a list of instructions; what the bytes 0 to 15 mean depends on the number of literals that the
//! instruction before copied.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

/// What the previous instruction did.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// A match and nothing behind it.
    NoLiterals,
    /// A match and 1 to 3 literals.
    FewLiterals,
    /// A run of 4 or more literals.
    LiteralRun,
}

/// Number of zeros in the shortest run.
const MIN_ZERO_RUN: usize = 4;
/// Shortest stream that can have a version.
const MIN_VERSIONED: usize = 5;

struct Stream<'p> {
    input: &'p [u8],
    out: Vec<u8>,
    limit: usize,
    has_runs: bool,
}

type Outcome<T> = Result<T, &'static str>;

const SHORT: &str = "the LZO data ends too early";

/// Unpacks a whole stream into at most `limit` bytes.
pub(super) fn unpack(packed: &[u8], limit: usize) -> Outcome<Vec<u8>> {
    let mut stream =
        Stream { input: packed, out: Vec::with_capacity(limit), limit, has_runs: false };
    let mut before = stream.start()?;
    // Each instruction takes at least one byte of input.
    while let Some(next) = stream.instruction(before)? {
        before = next;
    }
    if stream.input.is_empty() {
        Ok(stream.out)
    } else {
        Err("bytes follow the end of the LZO data")
    }
}

impl Stream<'_> {
    fn byte(&mut self) -> Outcome<u8> {
        let (first, rest) = self.input.split_first().ok_or(SHORT)?;
        self.input = rest;
        Ok(*first)
    }

    fn word(&mut self) -> Outcome<usize> {
        Ok(usize::from(u16::from_le_bytes([self.byte()?, self.byte()?])))
    }

    /// A length: `least` plus the bits in the instruction. If these are 0: `least`, `base` and the
    /// following bytes.
    fn length(&mut self, least: usize, bits: usize, base: usize) -> Outcome<usize> {
        if bits != 0 {
            return Ok(bits.saturating_add(least));
        }
        let mut length = base.saturating_add(least);
        loop {
            match self.byte()? {
                0 => length = length.saturating_add(255),
                last => return Ok(length.saturating_add(last.into())),
            }
            if length > self.limit {
                return Err("a length in the LZO data is beyond the cluster");
            }
        }
    }

    fn literals(&mut self, count: usize) -> Outcome<()> {
        let (taken, rest) = self.input.split_at_checked(count).ok_or(SHORT)?;
        self.room(count)?;
        self.out.extend_from_slice(taken);
        self.input = rest;
        Ok(())
    }

    fn room(&self, count: usize) -> Outcome<()> {
        let left = self.limit.saturating_sub(self.out.len());
        if count <= left { Ok(()) } else { Err("the LZO data is larger than the cluster") }
    }

    /// Copies from this many bytes before the end of the output.
    fn copy(&mut self, back: usize, length: usize) -> Outcome<()> {
        const BEFORE_START: &str = "the LZO data copies from before its start";
        self.room(length)?;
        let last = self.out.len().checked_sub(1).ok_or(BEFORE_START)?;
        let start = last.checked_sub(back).ok_or(BEFORE_START)?;
        // The copy may be longer than the distance: then the bytes repeat. The distance is at least
        // one byte.
        let mut left = length;
        while left > 0 {
            let piece = start..self.out.len().min(start.saturating_add(left));
            left = left.saturating_sub(piece.len());
            self.out.extend_from_within(piece);
        }
        Ok(())
    }

    /// The literals behind a match.
    fn after_match(&mut self, count: usize) -> Outcome<Option<Before>> {
        self.literals(count)?;
        Ok(Some(if count == 0 { Before::NoLiterals } else { Before::FewLiterals }))
    }

    /// The first byte may stand for a version or for literals.
    fn start(&mut self) -> Outcome<Before> {
        match self.input.first() {
            Some(17) if self.input.len() >= MIN_VERSIONED => {
                self.byte()?;
                self.has_runs = self.byte()? != 0;
                Ok(Before::NoLiterals)
            }
            Some(first @ 18..) => {
                let count = usize::from(first.saturating_sub(17));
                self.byte()?;
                self.literals(count)?;
                Ok(if count < 4 { Before::FewLiterals } else { Before::LiteralRun })
            }
            _ => Ok(Before::NoLiterals),
        }
    }

    /// `None` at the end of the stream.
    fn instruction(&mut self, before: Before) -> Outcome<Option<Before>> {
        let code = usize::from(self.byte()?);
        match code {
            0..16 => self.short(code, before),
            16..32 => self.far(code),
            32..64 => {
                let length = self.length(2, code & 31, 31)?;
                let word = self.word()?;
                self.copy(word >> 2, length)?;
                self.after_match(word & 3)
            }
            _ => self.near(code),
        }
    }

    fn short(&mut self, code: usize, before: Before) -> Outcome<Option<Before>> {
        if before == Before::NoLiterals {
            let count = self.length(3, code, 15)?;
            self.literals(count)?;
            return Ok(Some(Before::LiteralRun));
        }
        let back = usize::from(self.byte()?) << 2 | code >> 2;
        match before {
            Before::LiteralRun => self.copy(1 << 11 | back, 3)?,
            _ => self.copy(back, 2)?,
        }
        self.after_match(code & 3)
    }

    /// 3 to 8 bytes from at most 2 kB before.
    fn near(&mut self, code: usize) -> Outcome<Option<Before>> {
        let back = usize::from(self.byte()?) << 3 | code >> 2 & 7;
        self.copy(back, (code >> 5).saturating_add(1))?;
        self.after_match(code & 3)
    }

    fn far(&mut self, code: usize) -> Outcome<Option<Before>> {
        // A run has its length elsewhere, so the word behind the instruction must be looked at
        // first.
        let is_run = self.has_runs
            && code & 0xf8 == 0x18
            && self
                .input
                .first_chunk()
                .is_some_and(|word| u16::from_le_bytes(*word) & 0xfffc == 0xfffc);
        if is_run {
            let word = self.word()?;
            let count = (usize::from(self.byte()?) << 3 | code & 7).saturating_add(MIN_ZERO_RUN);
            self.room(count)?;
            self.out.extend(std::iter::repeat_n(0, count));
            return self.after_match(word & 3);
        }
        let length = self.length(2, code & 7, 7)?;
        let word = self.word()?;
        // The distance is 16 kB and this; 16 kB alone ends the stream.
        let beyond = (code & 8) << 11 | word >> 2;
        let Some(back) = beyond.checked_sub(1) else { return Ok(None) };
        self.copy(back.saturating_add(1 << 14), length)?;
        self.after_match(word & 3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: [u8; 3] = [17, 0, 0];

    fn stream(parts: &[&[u8]]) -> Vec<u8> {
        [parts.concat(), END.to_vec()].concat()
    }

    #[test]
    fn literals_and_every_kind_of_match() {
        // 4 literals; 3 bytes from 2 kB distance need a long history: first the near ones.
        let packed = stream(&[
            &[21],
            b"abcd",
            &[0x40 | 3 << 2 | 1, 0, b'x'],
            &[0x80 | 1 << 2, 0],
            &[33, 0, 0],
        ]);
        // "abcd", 3 from distance 4, "x", 5 from distance 2, 3 from distance 1.
        assert_eq!(unpack(&packed, 100).unwrap(), b"abcdabcxcxcxcccc");
    }

    #[test]
    fn long_runs_of_literals_and_far_matches() {
        let text: Vec<u8> = (0..40_000_u32).map(|n| (n % 251) as u8 ^ (n >> 8) as u8).collect();
        let run = text.len() - 18;
        let zeros = vec![0; run / 255];
        let literals = [&[0], zeros.as_slice(), &[(run % 255) as u8], text.as_slice()].concat();
        // 9 bytes from distance 16384 + 16384 + 100.
        let packed = stream(&[&literals, &[16 | 8 | 7], &(100_u16 << 2).to_le_bytes()]);
        let mut right = text.clone();
        right.extend_from_slice(&text[text.len() - 32_868..][..9]);
        assert_eq!(unpack(&packed, 65_536).unwrap(), right);
        // 3 bytes from distance 2049, behind the run of literals; then 2 bytes from distance 1,
        // behind one literal.
        let packed = stream(&[&literals, &[1, 0, b'q'], &[0, 0]]);
        let mut right = text.clone();
        right.extend_from_slice(&text[text.len() - 2049..][..3]);
        right.extend(b"qqq");
        assert_eq!(unpack(&packed, 65_536).unwrap(), right);
    }

    #[test]
    fn runs_of_zeros_need_the_version() {
        let with = |version| {
            [
                &[17, version][..],
                &[21 - 17, b'a', b'b', b'c', b'd', b'e', b'f', b'g'],
                &[0x18 | 5, 0xfc, 0xff, 2],
                &END,
            ]
            .concat()
        };
        assert_eq!(unpack(&with(1), 100).unwrap(), [b"abcdefg".as_slice(), &[0; 25]].concat());
        assert!(unpack(&with(0), 100).is_err());
    }

    #[test]
    fn damage_is_refused() {
        let good = stream(&[&[21], b"abcd", &[0x40 | 3 << 2, 0]]);
        assert_eq!(unpack(&good, 7).unwrap(), b"abcdabc");
        assert!(unpack(&good, 6).is_err(), "room");
        for len in 0..good.len() {
            assert!(unpack(&good[..len], 7).is_err(), "{len} bytes");
        }
        assert!(unpack(&[&good[..], &[0]].concat(), 7).is_err(), "bytes behind the end");
        assert!(
            unpack(&stream(&[&[21], b"abcd", &[0x40 | 4 << 2, 0]]), 7).is_err(),
            "before the start"
        );
        assert!(unpack(&[0; 4000], 100).is_err(), "endless length");
    }

    #[test]
    fn any_input_ends() {
        let mut random = 7_u32;
        for _ in 0..20_000 {
            let packed: Vec<u8> = (0..random % 64)
                .map(|_| {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (random >> 24) as u8
                })
                .collect();
            random = random.wrapping_add(1);
            assert!(unpack(&packed, 1000).map_or(0, |out| out.len()) <= 1000);
        }
    }
}
