//! tar as a source: ustar, GNU and pax, with long names, sparse members, extended attributes,
//! access lists, devices and hard links.
//!
//! Nothing of an archive is trusted. A member that cannot be put in is an error that names it.

pub(super) mod acl_text;
mod header;
mod map_lines;
mod pax;

use std::ops::Range;

use cairn_base::names::Escaped;
use cairn_vfs::Timestamp;

use self::header::{BLOCK, Decoded, Header};
use self::map_lines::MapLines;
pub(crate) use self::pax::RANGES_MAX;
use self::pax::{Extensions, HEADER_MAX};
use super::members::{Change, Members};
use super::reasons::{broken, not_kept};
use super::stream::Stream;
use crate::assembly::NewKind;
use crate::error::{Error, Result};
use crate::node::{self, Metadata, RegularFile};
use crate::path::MemberPath;

/// Longest name in GNU's long form.
const NAME_MAX: u64 = 1 << 16;
/// Members that are looked at to find out what an archive holds. An image has fewer files.
const SCANNED: usize = 4096;
/// What begins the name of a whiteout, and the name that makes a directory opaque.
const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// An image of a filesystem begins with zeros, as an archive without members does.
const NO_ARCHIVE: &str = "no archive: it begins with zeros, and other data follows: give an image \
                          of a filesystem as a file, neither compressed nor through a pipe";

/// True if the bytes begin a tar archive.
pub(super) fn is_tar(start: &[u8]) -> bool {
    let first = start.get(..BLOCK).unwrap_or_default();
    header::is_header(first) || (first.len() == BLOCK && first.iter().all(|byte| *byte == 0))
}

/// True if the bytes are all of a source, and less than the first header of a tar archive.
pub(super) fn is_cut(start: &[u8]) -> bool {
    start.len() < BLOCK && start.get(257..262) == Some(b"ustar")
}

/// What is wrong with the first header, if the bytes begin with one that is damaged.
pub(super) fn damaged_first(start: &[u8]) -> Option<String> {
    let first = start.get(..BLOCK).filter(|first| first.get(257..262) == Some(b"ustar"))?;
    let why = header::decode(first).err()?;
    let why = why.strip_prefix("damaged header: its ").unwrap_or(&why);
    let what = "not a tar archive: the header of the first member is damaged";
    Some(format!("{what}: {why}: fetch or make it again"))
}

/// The names of members in an archive, without reading contents; those before the first error.
pub(super) fn names(mut stream: Stream) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    while let Ok(block) = stream.bytes(BLOCK) {
        let Ok(Decoded::Header(header)) = header::decode(&block) else { break };
        if names.len() >= SCANNED || stream.skip(padded(header.size)).is_err() {
            break;
        }
        names.push(plain(&header.path));
    }
    names
}

/// The name of the first member that is not the directory itself, if its header is in `start`.
pub(super) fn first_name(start: &[u8]) -> Vec<u8> {
    let names = start.chunks_exact(BLOCK).map_while(|block| match header::decode(block) {
        Ok(Decoded::Header(header)) => Some((plain(&header.path), header.size)),
        _ => None,
    });
    let mut inside = true;
    let mut names = names.take_while(|(_, size)| std::mem::replace(&mut inside, *size == 0));
    names.find(|(name, _)| !name.is_empty() && name != b".").unwrap_or_default().0
}

fn plain(name: &[u8]) -> Vec<u8> {
    name.strip_prefix(b"./").unwrap_or(name).to_vec()
}

/// With what fills the last block.
fn padded(size: u64) -> u64 {
    size.saturating_add(BLOCK as u64 - 1) / BLOCK as u64 * BLOCK as u64
}

/// Puts the members of an archive in. With `whiteouts`, it is a layer of a container image.
///
/// # Errors
/// The archive is damaged, or a member cannot be put in.
pub(super) fn read(
    members: &mut impl Members,
    source: &str,
    stream: Stream,
    whiteouts: bool,
) -> Result<()> {
    let mut tar = Tar {
        members,
        source,
        stream,
        whiteouts,
        global: Extensions::default(),
        local: Extensions::default(),
        is_extended: false,
        is_announced: false,
        last: Vec::new(),
        is_empty: true,
    };
    tar.read_members()?;
    if tar.is_empty && !tar.stream.is_zero_to_the_end().map_err(|error| tar.io(&error))? {
        return Err(Error::source(source, NO_ARCHIVE));
    }
    tar.stream.drain().map_err(|error| Error::source(source, broken(&error)))
}

struct Tar<'a, M> {
    members: &'a mut M,
    source: &'a str,
    stream: Stream,
    whiteouts: bool,
    /// Records for all members that follow, and for the next one.
    global: Extensions,
    local: Extensions,
    /// The next member has an extended header of its own.
    is_extended: bool,
    /// A header has announced a further member.
    is_announced: bool,
    /// The last member, for errors.
    last: Vec<u8>,
    /// No header came before the end mark.
    is_empty: bool,
}

impl<M: Members> Tar<'_, M> {
    fn failed(&self, why: impl ToString) -> Error {
        Error::at_member(self.source, &self.last, why.to_string())
    }

    fn io(&self, error: &std::io::Error) -> Error {
        self.failed(broken(error))
    }

    fn read_members(&mut self) -> Result<()> {
        loop {
            let block = self.stream.bytes_or_end(BLOCK).map_err(|error| self.cut(&error))?;
            let Some(block) = block else { return self.ended() };
            match header::decode(&block).map_err(|why| self.behind(&why))? {
                Decoded::Zeros => return Ok(()),
                Decoded::Header(header) => {
                    self.is_empty = false;
                    self.header(*header)?;
                }
            }
        }
    }

    /// The error of a header that cannot be read.
    fn cut(&self, error: &std::io::Error) -> Error {
        let why = match error.kind() {
            std::io::ErrorKind::UnexpectedEof if self.last.is_empty() => {
                "ends before its first member: the archive is truncated: fetch or make it again"
                    .into()
            }
            std::io::ErrorKind::UnexpectedEof => {
                "is the last whole member: the archive is truncated: fetch or make it again".into()
            }
            _ => broken(error),
        };
        self.failed(why)
    }

    /// The archive ends behind a member, without an end mark, as layers of some tools do. An index
    /// has the size of a layer; another archive may have been cut there.
    fn ended(&mut self) -> Result<()> {
        if self.is_empty || self.is_announced {
            return Err(self.cut(&std::io::ErrorKind::UnexpectedEof.into()));
        }
        if !self.whiteouts {
            let (source, last) = (self.source, self.last.escaped());
            tracing::warn!(
                "{source}: ends behind {last} without an end mark: if it was cut off, fetch it \
                 again"
            );
            self.members.no_end(source);
        }
        Ok(())
    }

    /// An error of the header behind the last member.
    fn behind(&self, why: &str) -> Error {
        match self.last.is_empty() {
            true => self.failed(format!("at its first member: {why}")),
            false => self.failed(format!("behind this member: {why}")),
        }
    }

    fn header(&mut self, header: Header) -> Result<()> {
        self.is_announced = matches!(header.kind, b'x' | b'X' | b'L' | b'K');
        match header.kind {
            b'x' | b'X' => {
                let records = self.payload(&header, HEADER_MAX)?;
                self.is_extended = true;
                self.local.add(&records).map_err(|why| self.behind(&why))
            }
            b'g' => {
                let records = self.payload(&header, HEADER_MAX)?;
                self.global.add(&records).map_err(|why| self.behind(&why))?;
                if self.global.is_too_large_for_all() {
                    return Err(self.behind("too many records for all members"));
                }
                self.local = self.global.clone();
                Ok(())
            }
            b'L' | b'K' => {
                let mut name = self.payload(&header, NAME_MAX)?;
                let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
                name.truncate(end);
                let place =
                    if header.kind == b'L' { &mut self.local.path } else { &mut self.local.link };
                *place = Some(name);
                Ok(())
            }
            // The label of an archive.
            b'V' => self.skip_payload(header.size),
            _ => {
                let extended = std::mem::take(&mut self.is_extended);
                let of = std::mem::replace(&mut self.local, self.global.clone());
                self.last = of.path.clone().unwrap_or_else(|| header.path.clone());
                self.member(&header, &of, extended)
            }
        }
    }

    /// The contents of a header's own record.
    fn payload(&mut self, header: &Header, most: u64) -> Result<Vec<u8>> {
        if header.size > most {
            return Err(self.behind(&format!("a record of {} bytes", header.size)));
        }
        let len = usize::try_from(header.size).unwrap_or(0);
        let bytes = self.stream.bytes(len).map_err(|error| self.io(&error))?;
        self.pad(header.size)?;
        Ok(bytes)
    }

    fn skip_payload(&mut self, size: u64) -> Result<()> {
        self.stream.skip(size).map_err(|error| self.io(&error))?;
        self.pad(size)
    }

    /// Skips what fills the last block. A layer without an end mark may be without this, too.
    fn pad(&mut self, size: u64) -> Result<()> {
        let padding = (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64;
        let skipped = match self.whiteouts {
            true => self.stream.skip_up_to(padding),
            false => self.stream.skip(padding),
        };
        skipped.map_err(|error| self.io(&error))
    }

    fn member(&mut self, header: &Header, of: &Extensions, extended: bool) -> Result<()> {
        let size = of.size.unwrap_or(header.size);
        let path = MemberPath::parse(&self.last).map_err(|why| self.failed(why))?;
        if self.whiteouts && self.whiteout(&path)? {
            return self.skip_payload(size);
        }
        let metadata = self.metadata(header, of)?;
        let device = || {
            let major = of.device.0.unwrap_or(header.device.0);
            let minor = of.device.1.unwrap_or(header.device.1);
            node::device(major, minor).map_err(|why| self.failed(why))
        };
        let link = of.link.as_ref().unwrap_or(&header.link);
        let kind = match header.kind {
            // The oldest form of a directory.
            b'0' | 0 if self.last.ends_with(b"/") => {
                self.skip_payload(size)?;
                NewKind::Directory
            }
            b'0' | 0 | b'7' | b'S' => {
                let excluded = self.members.excludes(&path);
                match self.contents(header, of, size, excluded)? {
                    Some(file) => NewKind::Regular(file),
                    None => return Ok(()),
                }
            }
            b'1' => {
                let target = MemberPath::relative(link)
                    .map_err(|why| self.failed(format!("its target: {why}")))?;
                self.change(Change::Link(path, target))?;
                return if extended { self.skip_payload(size) } else { Ok(()) };
            }
            b'2' => NewKind::Symlink(link.as_slice().into()),
            b'3' => NewKind::CharDevice(device()?),
            b'4' => NewKind::BlockDevice(device()?),
            b'5' => NewKind::Directory,
            // GNU's listing of a directory in an incremental archive.
            b'D' => {
                self.skip_payload(size)?;
                NewKind::Directory
            }
            b'6' => NewKind::Fifo,
            other => {
                let kind = [other].escaped();
                return Err(self.failed(format!("a member of the unknown kind '{kind}'")));
            }
        };
        self.change(Change::Put { path, metadata, kind, named: of.named.clone() })
    }

    fn change(&mut self, change: Change) -> Result<()> {
        self.members.change(self.source, &self.last, change)
    }

    /// Applies a whiteout. False if the member is none.
    fn whiteout(&mut self, path: &MemberPath) -> Result<bool> {
        let Some((_, name)) = path.split() else { return Ok(false) };
        let Some(hidden) = name.strip_prefix(WHITEOUT) else { return Ok(false) };
        if name == OPAQUE {
            self.change(Change::Opaque(path.parent()))?;
        } else if !hidden.starts_with(WHITEOUT) {
            let hidden = path.parent().join(hidden).map_err(|why| self.failed(why))?;
            if matches!(hidden.split(), Some((_, b"." | b".."))) {
                return Err(self.failed("a whiteout of the directory itself"));
            }
            self.change(Change::Whiteout(hidden))?;
        }
        Ok(true)
    }

    fn metadata(&self, header: &Header, of: &Extensions) -> Result<Metadata> {
        let id = |id: u64, what: &str| {
            u32::try_from(id)
                .ok()
                .filter(|id| *id != u32::MAX)
                .ok_or_else(|| self.failed(format!("{what} {id} is not possible")))
        };
        let owner = (
            id(of.uid.unwrap_or(header.uid), "owner")?,
            id(of.gid.unwrap_or(header.gid), "group")?,
        );
        let plain = Timestamp { seconds: header.mtime, nanoseconds: 0 };
        let mut metadata = Metadata::new(header.mode, owner, of.mtime.unwrap_or(plain));
        metadata.atime = of.atime.unwrap_or(metadata.mtime);
        metadata.ctime = of.ctime.unwrap_or(metadata.mtime);
        metadata.xattrs = of.xattrs();
        Ok(metadata)
    }

    /// The contents of a regular file; `None` if it is excluded.
    fn contents(
        &mut self,
        header: &Header,
        of: &Extensions,
        size: u64,
        excluded: bool,
    ) -> Result<Option<RegularFile>> {
        let Extent { map, real, stored } = self.extent(header, of, size)?;
        if excluded {
            self.skip_payload(stored)?;
            return Ok(None);
        }
        let data = match map {
            Some(map) => check_map(map, real, stored).map_err(|why| self.failed(why))?,
            None => Some(0..stored).filter(|range| !range.is_empty()).into_iter().collect(),
        };
        let place = self
            .members
            .keep(&mut self.stream, stored)
            .map_err(|error| not_kept(error, |why| Error::member(self.source, &self.last, why)));
        let (store, at) = place?;
        self.pad(stored)?;
        Ok(Some(RegularFile::stored(real, data, store, at)))
    }

    /// The size of a member; the map of a sparse one is read, where it stands before the data.
    fn extent(&mut self, header: &Header, of: &Extensions, size: u64) -> Result<Extent> {
        if let Some((map, mut goes_on, real)) = header.sparse.clone() {
            let mut map = map;
            while goes_on {
                let block = self.stream.bytes(BLOCK).map_err(|error| self.io(&error))?;
                let (more, again) = header::more_sparse(&block).map_err(|why| self.failed(why))?;
                map.extend(more);
                goes_on = again;
                if map.len() > RANGES_MAX {
                    return Err(self.failed("a sparse map of too many ranges"));
                }
            }
            return Ok(Extent { map: Some(map), real, stored: size });
        }
        let real = of.sparse.size.unwrap_or(size);
        if !of.sparse.in_data {
            let map = of.sparse.map.clone();
            let real = if map.is_some() { real } else { size };
            return Ok(Extent { map, real, stored: size });
        }
        let (mut lines, mut stored) = (MapLines::default(), size);
        loop {
            let Some(left) = stored.checked_sub(BLOCK as u64) else {
                return Err(self.failed("its sparse map does not end"));
            };
            stored = left;
            let block = self.stream.bytes(BLOCK).map_err(|error| self.io(&error))?;
            // The last block has the last line, so a map is whole when its number of lines is.
            if let Some(map) = lines.add(&block).map_err(|why| self.failed(why))? {
                return Ok(Extent { map: Some(map), real, stored });
            }
        }
    }
}

/// How large a member is.
struct Extent {
    /// Where a sparse member has data.
    map: Option<Vec<Range<u64>>>,
    /// Bytes of the file.
    real: u64,
    /// Bytes that are stored for it.
    stored: u64,
}

/// The ranges with data, if the map fits the member.
fn check_map(map: Vec<Range<u64>>, real: u64, stored: u64) -> Result<Vec<Range<u64>>, String> {
    let (mut end, mut sum) = (0, 0_u64);
    for range in &map {
        if range.start < end || range.end > real {
            return Err(format!("its sparse map is wrong at byte {}", range.start));
        }
        end = range.end;
        sum = sum.saturating_add(range.end - range.start);
    }
    if sum != stored {
        return Err(format!("its sparse map has {sum} bytes of data, the archive {stored}"));
    }
    Ok(map.into_iter().filter(|range| !range.is_empty()).collect())
}
