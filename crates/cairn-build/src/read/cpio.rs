//! cpio as a source: the "newc" form, which initramfs has, with and without checksums.
//! Several archives may follow each other.

use std::collections::HashMap;
use std::ops::Range;

use cairn_vfs::{FileKind, Timestamp};

use super::reasons::{broken, not_kept};
use super::stream::Stream;
use crate::assembly::{Assembly, NewKind};
use crate::error::{Error, Result};
use crate::node::{self, Metadata, RegularFile};
use crate::path::MemberPath;

/// Bytes of a header.
const HEADER: usize = 110;
/// Longest name, with its NUL.
const NAME_MAX: u32 = 1 << 16;
/// Bytes that are summed up at a time.
const PIECE: u64 = 1 << 20;
/// The name of the last member.
const TRAILER: &[u8] = b"TRAILER!!!";

/// True if the bytes begin a cpio archive of the right form.
pub(super) fn is_cpio(start: &[u8]) -> bool {
    start.starts_with(b"070701") || start.starts_with(b"070702")
}

/// What another form of cpio is called, if the bytes begin one.
pub(super) fn other_form(start: &[u8]) -> Option<&'static str> {
    match start {
        [b'0', b'7', b'0', b'7', b'0', b'7', ..] => Some("the old portable form (odc)"),
        [0xc7, 0x71, ..] | [0x71, 0xc7, ..] => Some("the old binary form"),
        _ => None,
    }
}

/// The numbers of a header.
struct Header {
    ino: u32,
    mode: u32,
    owner: (u32, u32),
    links: u32,
    mtime: u32,
    size: u32,
    device: (u32, u32),
    rdev: (u32, u32),
    name_size: u32,
    /// The sum of the bytes of a regular file, in the form that has one.
    sum: Option<u32>,
}

impl Header {
    fn decode(bytes: &[u8]) -> Option<Self> {
        if !is_cpio(bytes) {
            return None;
        }
        let number = |index: usize| {
            let digits = bytes.get(6 + index * 8..14 + index * 8)?;
            u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
        };
        Some(Self {
            ino: number(0)?,
            mode: number(1)?,
            owner: (number(2)?, number(3)?),
            links: number(4)?,
            mtime: number(5)?,
            size: number(6)?,
            device: (number(7)?, number(8)?),
            rdev: (number(9)?, number(10)?),
            name_size: number(11)?,
            sum: if bytes.starts_with(b"070702") { Some(number(12)?) } else { None },
        })
    }
}

/// Puts the members of one or more archives in.
///
/// # Errors
/// An archive is damaged, or a member cannot be put in.
pub(super) fn read(assembly: &mut Assembly, source: &str, stream: Stream) -> Result<()> {
    let mut cpio =
        Cpio { assembly, source, stream, links: HashMap::new(), last: Vec::new(), at: 0 };
    cpio.member()?;
    while cpio.next_archive()? {
        cpio.member()?;
    }
    Ok(())
}

struct Cpio<'a> {
    assembly: &'a mut Assembly,
    source: &'a str,
    stream: Stream,
    /// Nodes with several names, by device and inode. The last name has the contents.
    links: HashMap<(u32, u32, u32), usize>,
    last: Vec<u8>,
    /// Bytes of this archive that were read.
    at: u64,
}

impl Cpio<'_> {
    fn failed(&self, why: impl ToString) -> Error {
        Error::at_member(self.source, &self.last, why.to_string())
    }

    /// An error of the header behind the last member.
    fn behind(&self, what: &str) -> Error {
        match self.last.is_empty() {
            true => self.failed(format!("it begins with {what}")),
            false => self.failed(format!("{what} is behind this member")),
        }
    }

    fn bytes(&mut self, len: usize) -> Result<Vec<u8>> {
        self.at = self.at.saturating_add(len as u64);
        self.stream.bytes(len).map_err(|error| self.failed(broken(&error)))
    }

    /// Skips to a multiple of four.
    fn pad(&mut self) -> Result<()> {
        let padding = (4 - self.at % 4) % 4;
        self.bytes(usize::try_from(padding).unwrap_or(0)).map(drop)
    }

    /// Reads members up to the trailer.
    fn member(&mut self) -> Result<()> {
        loop {
            let block = self.bytes(HEADER)?;
            let header = Header::decode(&block).ok_or_else(|| self.behind("a damaged header"))?;
            if header.name_size > NAME_MAX {
                return Err(self.behind("a name that is too long"));
            }
            let mut name = self.bytes(usize::try_from(header.name_size).unwrap_or(0))?;
            if name.pop() != Some(0) {
                return Err(self.behind("a name without end"));
            }
            self.pad()?;
            if name == TRAILER {
                return Ok(());
            }
            self.last = name;
            self.put(&header)?;
            self.pad()?;
        }
    }

    /// Skips the zeros behind an archive. True if another archive follows.
    fn next_archive(&mut self) -> Result<bool> {
        self.links.clear();
        loop {
            let mut byte = [0];
            let read = std::io::Read::read(&mut self.stream, &mut byte);
            match (read.map_err(|error| self.failed(broken(&error)))?, byte) {
                (0, _) => return Ok(false),
                (_, [0]) => {}
                (_, [b'0']) => {
                    let stream = std::mem::replace(
                        &mut self.stream,
                        Stream::Pipe(Box::new(std::io::empty())),
                    );
                    self.stream = stream.unread(vec![b'0']);
                    self.at = 0;
                    return Ok(true);
                }
                _ => {
                    let why = "something that is no cpio archive is behind the archive's end";
                    return Err(Error::source(self.source, why));
                }
            }
        }
    }

    fn put(&mut self, header: &Header) -> Result<()> {
        let path = MemberPath::parse(&self.last).map_err(|why| self.failed(why))?;
        let kind = FileKind::from_mode(header.mode)
            .ok_or_else(|| self.failed(format!("of an unknown kind ({:o})", header.mode)))?;
        let excluded = self.assembly.rules.excludes(&path, kind == FileKind::Directory);
        let mut target = Vec::new();
        let file = match kind {
            FileKind::Regular if !excluded && header.size > 0 => Some(self.contents(header)?),
            FileKind::Symlink => {
                if header.size > 4095 {
                    return Err(self.failed("a symbolic link to more than 4095 bytes"));
                }
                // Each of its names has the target.
                target = self.bytes(usize::try_from(header.size).unwrap_or(0))?;
                None
            }
            _ => {
                let size = u64::from(header.size);
                self.at = self.at.saturating_add(size);
                self.stream.skip(size).map_err(|error| self.failed(broken(&error)))?;
                None
            }
        };
        let id = (header.device.0, header.device.1, header.ino);
        if header.links > 1
            && kind != FileKind::Directory
            && let Some(node) = self.links.get(&id).copied()
        {
            if let Some(file) = file {
                self.assembly.set_contents(node, file);
            }
            return match excluded {
                true => Ok(()),
                false => self.assembly.link_node(&path, node).map_err(|why| self.failed(why)),
            };
        }
        let device = || {
            let (major, minor) = header.rdev;
            node::device(major, minor).map_err(|why| self.failed(why))
        };
        let kind = match kind {
            FileKind::Directory => NewKind::Directory,
            FileKind::Regular => NewKind::Regular(file.unwrap_or(RegularFile::EMPTY)),
            FileKind::Symlink => NewKind::Symlink(target.into()),
            FileKind::CharDevice => NewKind::CharDevice(device()?),
            FileKind::BlockDevice => NewKind::BlockDevice(device()?),
            FileKind::Fifo => NewKind::Fifo,
            FileKind::Socket => NewKind::Socket,
        };
        let mtime = Timestamp { seconds: header.mtime.into(), nanoseconds: 0 };
        let metadata = Metadata::new(header.mode, header.owner, mtime);
        let put = self.assembly.put(&path, metadata, kind).map_err(|why| self.failed(why))?;
        if let Some(node) = put.filter(|_| header.links > 1) {
            self.links.insert(id, node);
        }
        Ok(())
    }

    fn contents(&mut self, header: &Header) -> Result<RegularFile> {
        let size = u64::from(header.size);
        self.at = self.at.saturating_add(size);
        let kept_at = self.stream.keep(size, &mut self.assembly.stores);
        let (store, at) = kept_at
            .map_err(|error| not_kept(error, |why| Error::member(self.source, &self.last, why)))?;
        let file = RegularFile::stored(size, vec![Range { start: 0, end: size }], store, at);
        let Some(stated) = header.sum else { return Ok(file) };
        let sum = self.sum(&file)?;
        if sum != stated {
            let why = format!("damaged: its checksum is {sum:#x}, not {stated:#x}");
            return Err(self.failed(format!("{why}: fetch or make the archive again")));
        }
        Ok(file)
    }

    /// The sum of the bytes of a file that is kept.
    fn sum(&self, file: &RegularFile) -> Result<u32> {
        let (mut sum, mut at, mut piece) = (0_u32, 0, Vec::new());
        while at < file.size {
            piece.resize(usize::try_from((file.size - at).min(PIECE)).unwrap_or(0), 0);
            self.assembly.stores.read(file, at, &mut piece)?;
            sum = piece.iter().fold(sum, |sum, byte| sum.wrapping_add((*byte).into()));
            at += piece.len() as u64;
        }
        Ok(sum)
    }
}
