//! A stream of zstd frames: they follow each other, with frames between them that are skipped. The
//! checksum of a frame is compared.

use std::io::{self, Cursor, Read};

use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

/// Largest window: what `zstd -d` takes without an option.
const WINDOW_MAX: u64 = 128 << 20;
/// Magic number and length of a frame that is skipped.
const HEAD: u64 = 8;
const SKIPPED: std::ops::RangeInclusive<u32> = 0x184d_2a50..=0x184d_2a5f;

type Frame<R> = io::Chain<Cursor<Vec<u8>>, R>;

enum State<R: Read> {
    /// Between frames.
    Between(R),
    Inside(Box<StreamingDecoder<Frame<R>, FrameDecoder>>),
    /// The end, or an error.
    Done,
}

/// All frames of a stream.
pub(super) struct Zstd<R: Read>(State<R>);

fn damaged(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl<R: Read> Zstd<R> {
    pub(super) fn new(from: R) -> Self {
        Self(State::Between(from))
    }

    /// The state at the next frame with contents.
    fn next_frame(mut from: R) -> io::Result<State<R>> {
        loop {
            let mut head = Vec::new();
            (&mut from).take(HEAD).read_to_end(&mut head)?;
            if head.is_empty() {
                return Ok(State::Done);
            }
            let Some((magic, len)) = head.first_chunk::<4>().zip(head.last_chunk::<4>()) else {
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            if head.len() == 8 && SKIPPED.contains(&u32::from_le_bytes(*magic)) {
                let len = u64::from(u32::from_le_bytes(*len));
                if io::copy(&mut (&mut from).take(len), &mut io::sink())? != len {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                continue;
            }
            let frame = Cursor::new(head).chain(from);
            let decoder = StreamingDecoder::new_with_max_window_size(frame, WINDOW_MAX);
            return Ok(State::Inside(Box::new(decoder.map_err(damaged)?)));
        }
    }
}

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            match std::mem::replace(&mut self.0, State::Done) {
                State::Between(from) => self.0 = Self::next_frame(from)?,
                State::Inside(mut decoder) => {
                    let count = decoder.read(buffer)?;
                    if count > 0 {
                        self.0 = State::Inside(decoder);
                        return Ok(count);
                    }
                    let (frame, state) = decoder.into_parts();
                    let stored = state.get_checksum_from_data();
                    if stored.is_some() && stored != state.get_calculated_checksum() {
                        return Err(damaged("wrong checksum"));
                    }
                    self.0 = State::Between(frame.into_inner().1);
                }
                State::Done => return Ok(0),
            }
        }
    }
}
