//! [`Receiver`]: reads the answers of one connection.
//!
//! Each is checked against the request that it answers: nothing is read that was not asked for, and
//! nothing is taken for data that did not come. Data goes where it belongs without a copy between.

use std::sync::Arc;

use cairn_block::{Error, ErrorKind, IoBuf};

use super::command::{Command, Draft, Kind};
use super::state::Shared;
use crate::failure::Broken;
use crate::transport::Incoming;
use crate::wire::reply::{self, Header};
use crate::wire::{Headers, Violation, errors};

type Result<T> = std::result::Result<T, Broken>;

/// One connection's answers.
pub(super) struct Receiver {
    pub(super) incoming: Incoming,
    pub(super) shared: Arc<Shared>,
    /// The number of the session.
    pub(super) session: u64,
    pub(super) lane: usize,
    pub(super) headers: Headers,
    pub(super) allocation: Option<u32>,
}

impl Receiver {
    /// Reads until the connection ends, and says why it did.
    pub(super) fn run(mut self) {
        let broken = loop {
            if let Err(broken) = self.answer() {
                break broken;
            }
        };
        match &broken {
            Broken::Violation(_) => self.shared.die(broken.words()),
            _ => self.shared.broken(self.session, &broken.words()),
        }
        let shared = self.shared.clone();
        drop(self);
        shared.state.lock().readers -= 1;
        shared.changed.notify_all();
    }

    /// Reads one answer, or one chunk of one.
    fn answer(&mut self) -> Result<()> {
        let mut bytes = [0; reply::LONGEST];
        let (magic, rest) = bytes.split_at_mut(reply::MAGIC);
        self.incoming.fill(magic)?;
        let magic = magic.try_into().unwrap_or_default();
        let size = Header::size(magic, self.headers)?;
        let rest = rest.get_mut(..size - reply::MAGIC).unwrap_or_default();
        self.incoming.fill(rest)?;
        let header = bytes.get(..size).and_then(Header::decode);
        let unreadable = Violation::Magic { what: "an answer", found: 0 };
        let header = header.ok_or(unreadable)?;
        let cookie = match header {
            Header::Simple { cookie, .. } | Header::Chunk { cookie, .. } => cookie,
        };
        let command = self.shared.take(cookie, self.lane);
        let mut command = command.ok_or(Violation::Cookie(cookie))?;
        let done = match header {
            Header::Simple { error, .. } => self.simple(&mut command, error).map(|()| true),
            Header::Chunk { flags, kind, len, .. } => {
                self.chunk(&mut command, kind, len).map(|()| flags & reply::DONE != 0)
            }
        };
        let done = done.and_then(|done| match done && command.error.is_none() {
            true => complete(&command).map(|()| true),
            false => Ok(done),
        });
        match done {
            Ok(true) => self.finish(cookie, command),
            Ok(false) => self.shared.put_back(cookie, command),
            Err(broken) => {
                self.shared.put_back(cookie, command);
                return Err(broken);
            }
        }
        Ok(())
    }

    fn finish(&self, cookie: u64, mut command: Command) {
        match command.error.take() {
            Some(error) if error.detail == ENDING => {
                // It is sent again to the server's successor.
                self.shared.put_back(cookie, command);
                self.shared.broken(self.session, ENDING);
            }
            Some(error) => self.shared.answered(command, Err(error)),
            None => self.shared.answered(command, Ok(())),
        }
    }

    fn simple(&mut self, command: &mut Command, error: u32) -> Result<()> {
        if error != 0 {
            command.error = Some(failed(&command.draft, error, ""));
            return Ok(());
        }
        let Draft { offset, len, .. } = command.draft;
        match command.draft.kind {
            Kind::Read(..) if self.headers == Headers::Simple => self.data(command, offset, len),
            Kind::Read(..) | Kind::Status(_) => {
                Err(Violation::Value { what: "an answer without chunks to a read", found: 0 }
                    .into())
            }
            _ => Ok(()),
        }
    }

    fn chunk(&mut self, command: &mut Command, kind: u16, len: u64) -> Result<()> {
        let of_len = command.draft.len;
        match kind {
            reply::NONE => Ok(Violation::length("an empty chunk", len, 0..=0)?),
            reply::OFFSET_DATA => {
                let most = of_len.saturating_add(8);
                Violation::length("a chunk of data", len, 9..=most)?;
                let offset = u64::from_be_bytes(self.array()?);
                self.data(command, offset, len - 8)
            }
            reply::OFFSET_HOLE => {
                Violation::length("a chunk that is a hole", len, 12..=12)?;
                let offset = u64::from_be_bytes(self.array()?);
                let len = u32::from_be_bytes(self.array()?).into();
                place(command, offset, len, |part| {
                    part.fill(0);
                    Ok(())
                })
            }
            reply::BLOCK_STATUS | reply::BLOCK_STATUS_EXT => self.status(command, kind, len),
            kind if kind & reply::ERROR_BIT != 0 => {
                Violation::length("an error", len, 6..=reply::MAX_ERROR)?;
                let payload = self.payload(len)?;
                let (error, words) = reply::decode_error(&payload)?;
                let error = failed(&command.draft, error, &words);
                command.error.get_or_insert(error);
                Ok(())
            }
            kind => {
                let what = "the kind of a chunk";
                Err(Violation::Value { what, found: kind.into() }.into())
            }
        }
    }

    fn status(&mut self, command: &mut Command, kind: u16, len: u64) -> Result<()> {
        let expected = match self.headers {
            Headers::Extended => reply::BLOCK_STATUS_EXT,
            _ => reply::BLOCK_STATUS,
        };
        let Kind::Status(found) = command.draft.kind.clone() else {
            let what = "the kind of a chunk";
            return Err(Violation::Value { what, found: kind.into() }.into());
        };
        if kind != expected {
            let what = "the kind of a status";
            return Err(Violation::Value { what, found: kind.into() }.into());
        }
        Violation::length("the status of blocks", len, 12..=reply::max_status(self.headers))?;
        let (context, extents) = reply::decode_status(&self.payload(len)?, self.headers)?;
        if Some(context) == self.allocation {
            *found.lock() = extents;
        }
        Ok(())
    }

    /// Reads data of a read.
    fn data(&mut self, command: &mut Command, offset: u64, len: u64) -> Result<()> {
        let incoming = &mut self.incoming;
        place(command, offset, len, |part| incoming.fill(part).map_err(Broken::Io))
    }

    fn payload(&mut self, len: u64) -> Result<Vec<u8>> {
        let mut payload = vec![0; usize::try_from(len).unwrap_or_default()];
        self.incoming.fill(&mut payload)?;
        Ok(payload)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.incoming.fill(&mut bytes)?;
        Ok(bytes)
    }
}

/// Has `fill` write a part of a read, after the part was checked.
fn place(
    command: &mut Command,
    offset: u64,
    len: u64,
    fill: impl FnOnce(&mut [u8]) -> Result<()>,
) -> Result<()> {
    let draft = &command.draft;
    let (of, of_len) = (draft.offset, draft.len);
    let wrong = Violation::Range { offset, len, of, of_len };
    let Kind::Read(target, at) = &draft.kind else { return Err(wrong.into()) };
    let end = offset.checked_add(len).filter(|end| *end <= of.saturating_add(of_len));
    let within = offset.checked_sub(of).zip(end).filter(|_| len > 0);
    let Some((within, end)) = within else { return Err(wrong.into()) };
    if !command.coverage.add(offset, end) {
        return Err(wrong.into());
    }
    let mut buf = target.take();
    let done = part(&mut buf, *at, within, len).map_or(Err(wrong.into()), fill);
    target.give_back(buf);
    done
}

fn part(buf: &mut IoBuf, at: usize, within: u64, len: u64) -> Option<&mut [u8]> {
    let start = at.checked_add(usize::try_from(within).ok()?)?;
    let end = start.checked_add(usize::try_from(len).ok()?)?;
    buf.get_mut(start..end)
}

/// Checks that a read that succeeded has all of its data.
fn complete(command: &Command) -> Result<()> {
    let Draft { offset, len, ref kind, .. } = command.draft;
    let missing = len - command.coverage.total().min(len);
    match kind {
        Kind::Read(..) if missing > 0 => Err(Violation::Missing { offset, missing }.into()),
        _ => Ok(()),
    }
}

/// The detail of an error that is not one of the command.
const ENDING: &str = "the server is ending";

/// An error that the server has answered: what it says, and what to do.
fn failed(draft: &Draft, error: u32, words: &str) -> Error {
    let (kind, meaning, advice) = match error {
        errors::EPERM => (
            ErrorKind::PermissionDenied,
            "it is not permitted",
            "see whether the server exports it read-only",
        ),
        errors::EIO => {
            (ErrorKind::Io, "input/output error", "see to the disk that the server exports")
        }
        errors::ENOMEM => (ErrorKind::Io, "it has no memory", "free memory on its machine"),
        errors::ENOSPC => (ErrorKind::NoSpace, "it has no space left", "make room there"),
        errors::EINVAL => (ErrorKind::Io, "the request is not valid", LOG),
        errors::EOVERFLOW => (ErrorKind::Unsupported, "the request is too large", LOG),
        errors::ENOTSUP => (ErrorKind::Unsupported, "it is not supported", LOG),
        errors::ESHUTDOWN => return draft.error(ErrorKind::Io, ENDING),
        _ => (ErrorKind::Io, "", LOG),
    };
    let meaning = match meaning {
        "" => format!("error number {error:#x}, which NBD does not define"),
        meaning => meaning.to_owned(),
    };
    let words = match words {
        "" => String::new(),
        words => format!(" ({})", words.escape_debug()),
    };
    draft.error(kind, format!("the NBD server answered: {meaning}{words}: {advice}"))
}

/// What to do about an error that only the server knows the cause of.
const LOG: &str = "see what the log of the server says";
