//! Carries out one request on the device.

use cairn_block::extent::MAX_EXTENTS;
use cairn_block::{
    Batch, BlockDevice, Bytes, Durability, Error, ErrorKind, Extent, IoBuf, Request as Transfer,
    bounds,
};

use super::options::Export;
use crate::extent;
use crate::wire::request::{Kind, Request};
use crate::wire::{CommandFlags, DEFAULT_PAYLOAD, errors};

/// Zeros that must take space are written in pieces of this size.
const ZEROES: usize = 1 << 20;

/// What is answered.
pub(super) enum Answer {
    Done,
    Data(IoBuf),
    Status(Vec<(u64, u32)>),
}

/// A request that failed: the protocol's number, and words.
pub(super) type Failed = (u32, String);

/// Carries out a request. `data` is that of a write.
pub(super) fn perform(
    export: &Export,
    allocation: bool,
    request: &Request,
    data: IoBuf,
) -> Result<Answer, Failed> {
    check(export, allocation, request)?;
    let fua = request.flags.contains(CommandFlags::FUA);
    let Request { offset, len, flags, .. } = *request;
    let device = &*export.device;
    match request.kind {
        Kind::Read => {
            let short = usize::try_from(len).map_err(|_| too_long())?;
            let buf = IoBuf::try_zeroed(short).map_err(|error| failed(&error.into()))?;
            let mut bufs = run(device, Transfer::Read { offset, buf }, false)?;
            bufs.pop().map(Answer::Data).ok_or((errors::EIO, String::new()))
        }
        Kind::Write => {
            let bufs = vec![data.into_bytes()];
            run(device, Transfer::Write { offset, bufs }, fua).map(|_| Answer::Done)
        }
        Kind::WriteZeroes if flags.contains(CommandFlags::NO_HOLE) => {
            zeroes(device, offset, len, fua).map(|()| Answer::Done)
        }
        Kind::WriteZeroes => {
            run(device, Transfer::WriteZeroes { offset, len }, fua).map(|_| Answer::Done)
        }
        Kind::Trim if device.geometry().discard => {
            run(device, Transfer::Discard { offset, len }, fua).map(|_| Answer::Done)
        }
        Kind::Flush => device.flush().map(|()| Answer::Done).map_err(|error| failed(&error)),
        Kind::BlockStatus => status(export, request).map(Answer::Status),
        _ => Err((errors::EINVAL, "this request is not known".into())),
    }
}

/// Flags, range, alignment and permission.
fn check(export: &Export, allocation: bool, request: &Request) -> Result<(), Failed> {
    let fua = CommandFlags::FUA;
    let (allowed, changes) = match request.kind {
        Kind::Read => (CommandFlags::DF, false),
        Kind::Write => (CommandFlags::PAYLOAD_LEN, true),
        Kind::WriteZeroes => (CommandFlags::NO_HOLE | CommandFlags::FAST_ZERO, true),
        Kind::Trim => (CommandFlags::empty(), true),
        Kind::Flush => (CommandFlags::empty(), false),
        Kind::BlockStatus if allocation => (CommandFlags::REQ_ONE, false),
        _ => return Err((errors::EINVAL, "this request is not known".into())),
    };
    if !(allowed | fua).contains(request.flags) {
        return Err((errors::EINVAL, format!("flags {:#x}", request.flags.bits())));
    }
    if changes && export.is_read_only() {
        return Err((errors::EPERM, "the export is read-only".into()));
    }
    if request.kind == Kind::Read && request.len > DEFAULT_PAYLOAD.into() {
        return Err(too_long());
    }
    if request.kind == Kind::Flush {
        return Ok(());
    }
    let (offset, len) = (request.offset, request.len);
    // The range alone: nothing is written.
    let geometry = cairn_block::Geometry { read_only: false, ..export.device.geometry() };
    let range = Transfer::Discard { offset, len };
    let beyond = offset.checked_add(len).is_none_or(|end| end > geometry.size);
    bounds::check(&geometry, &range).map_err(|error| {
        let full = beyond && matches!(request.kind, Kind::Write | Kind::WriteZeroes);
        (if full { errors::ENOSPC } else { errors::EINVAL }, error.detail)
    })?;
    let slow = request.flags.contains(CommandFlags::NO_HOLE) || !geometry.discard;
    if request.flags.contains(CommandFlags::FAST_ZERO) && slow {
        return Err((errors::ENOTSUP, "zeros would take as long as data".into()));
    }
    Ok(())
}

fn too_long() -> Failed {
    (errors::EINVAL, format!("a read has at most {DEFAULT_PAYLOAD} bytes"))
}

fn run(device: &dyn BlockDevice, transfer: Transfer, fua: bool) -> Result<Vec<IoBuf>, Failed> {
    let durability = Durability { preflush: false, fua };
    let batch = Batch { requests: vec![transfer], durability };
    device.submit(batch).wait().map_err(|error| failed(&error))
}

/// Writes zeros that take space.
fn zeroes(device: &dyn BlockDevice, offset: u64, len: u64, fua: bool) -> Result<(), Failed> {
    let zeros =
        Bytes::from_owner(IoBuf::try_zeroed(ZEROES).map_err(|error| failed(&error.into()))?);
    let mut at = 0;
    while at < len {
        let part = (len - at).min(ZEROES as u64);
        let bufs = vec![zeros.slice(..usize::try_from(part).unwrap_or_default())];
        run(device, Transfer::Write { offset: offset + at, bufs }, fua)?;
        at += part;
    }
    Ok(())
}

/// The extents of a range: as many as fit an answer, and not more than was asked for.
fn status(export: &Export, request: &Request) -> Result<Vec<(u64, u32)>, Failed> {
    let Request { offset, len, flags, .. } = *request;
    let end = offset.saturating_add(len);
    let whole = || vec![Extent::data(offset..end)];
    let told = match &export.extents {
        Some(extents) if len > 0 => extents(offset..end).map_err(|error| failed(&error))?,
        _ => whole(),
    };
    let mut answer = Vec::new();
    let mut at = offset;
    for one in if told.is_empty() { whole() } else { told } {
        let len = one.len.min(end - at);
        if len == 0 || answer.len() == MAX_EXTENTS {
            break;
        }
        answer.push((len, extent::flags(&one)));
        at += len;
    }
    if flags.contains(CommandFlags::REQ_ONE) {
        answer.truncate(1);
    }
    match answer.is_empty() {
        true => Err((errors::EINVAL, "an empty range has no status".into())),
        false => Ok(answer),
    }
}

fn failed(error: &Error) -> Failed {
    let number = match error.kind {
        ErrorKind::ReadOnly | ErrorKind::PermissionDenied => errors::EPERM,
        ErrorKind::NoSpace => errors::ENOSPC,
        ErrorKind::OutOfRange | ErrorKind::Unsupported | ErrorKind::UnsupportedFeature => {
            errors::EINVAL
        }
        ErrorKind::NoMemory => errors::ENOMEM,
        _ => errors::EIO,
    };
    (number, error.to_string())
}
