//! A stream of gzip members, which follow each other. Zeros may fill what is behind the last one,
//! as tapes and devices have them.

use std::io::{self, BufRead, ErrorKind, Read};

use flate2::bufread::GzDecoder;

/// What begins a member.
const MAGIC: u8 = 0x1f;

/// All members of a stream.
pub(super) struct Gzip<R: BufRead>(Option<GzDecoder<R>>);

impl<R: BufRead> Gzip<R> {
    pub(super) fn new(from: R) -> Self {
        Self(Some(GzDecoder::new(from)))
    }
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = self.0.as_mut().filter(|_| !buffer.is_empty()) {
            match member.read(buffer)? {
                0 => {}
                count => return Ok(count),
            }
            let Some(member) = self.0.take() else { break };
            let mut from = member.into_inner();
            match next(&mut from)? {
                None => break,
                Some(MAGIC) => self.0 = Some(GzDecoder::new(from)),
                Some(0) => return only_zeros(&mut from).map(|()| 0),
                Some(_) => return Err(other_data()),
            }
        }
        Ok(0)
    }
}

/// The next byte, which is not taken; none at the end.
fn next(from: &mut impl BufRead) -> io::Result<Option<u8>> {
    loop {
        match from.fill_buf() {
            Ok(ahead) => return Ok(ahead.first().copied()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads to the end.
fn only_zeros(from: &mut impl BufRead) -> io::Result<()> {
    while next(from)?.is_some() {
        let ahead = from.fill_buf()?;
        if ahead.iter().any(|byte| *byte != 0) {
            return Err(other_data());
        }
        let count = ahead.len();
        from.consume(count);
    }
    Ok(())
}

fn other_data() -> io::Error {
    let why = "other data is behind the end of the gzip stream: fetch or make it again";
    io::Error::new(ErrorKind::Unsupported, why)
}
