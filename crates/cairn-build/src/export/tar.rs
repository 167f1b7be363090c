//! Writes a tree as a pax archive: what a ustar header cannot hold is in records before it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::ops::Range;

use cairn_vfs::{Acl, Timestamp, acl};

use crate::error::{Error, Result};
use crate::node::{Kind, Metadata, Node, NodeId, RegularFile};
use crate::tree::Tree;

/// Bytes of a block.
const BLOCK: usize = 512;
/// Blocks of a record: an archive ends with a whole one, as GNU tar's do.
const RECORD: u64 = 20;
/// Bytes read at a time.
const CHUNK: u64 = 1 << 20;
/// Most ranges in a map: one less than readers take, for the end.
const RANGES_MAX: usize = crate::read::RANGES_MAX - 1;
/// Fills a buffer with what follows so many bytes.
type ReadPiece<'a> = dyn FnMut(u64, &mut [u8]) -> Result<()> + 'a;
/// Largest numbers of the header's fields of 8 and of 12 bytes.
const NUMBER_8: u64 = 0o7_777_777;
const NUMBER_12: u64 = 0o77_777_777_777;

/// Writes all nodes and the end mark.
///
/// # Errors
/// A source cannot be read, or the archive cannot be written.
pub(super) fn write(
    tree: &Tree,
    to: &mut dyn Write,
    failed: &dyn Fn(io::Error) -> Error,
    lists: Lists,
) -> Result<()> {
    let mut archive = Archive { tree, to, failed, lists, blocks: 0, first: HashMap::new() };
    // A directory's entries follow it at once: GNU tar restores its time when they end.
    tree.each_name(&mut |path, id, node| match node.kind {
        Kind::Directory(_) if path.is_empty() => archive.node(b"./", node, id),
        Kind::Directory(_) => archive.node(&[path, b"/"].concat(), node, id),
        _ => archive.node(path, node, id),
    })?;
    archive.end()
}

/// The form of access lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lists {
    /// As text, which GNU tar and bsdtar read.
    AsText,
    /// As the extended attributes that hold them, which unpackers of containers read.
    AsAttributes,
}

struct Archive<'a> {
    tree: &'a Tree,
    to: &'a mut dyn Write,
    failed: &'a dyn Fn(io::Error) -> Error,
    lists: Lists,
    blocks: u64,
    /// The first name of each node with several.
    first: HashMap<NodeId, Vec<u8>>,
}

/// What goes into one header.
struct Header<'a> {
    path: &'a [u8],
    link: &'a [u8],
    kind: u8,
    size: u64,
    device: Option<(u32, u32)>,
    metadata: &'a Metadata,
}

impl Archive<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.to.write_all(bytes).map_err(self.failed)
    }

    /// Bytes, filled up to a whole block.
    fn blocks(&mut self, bytes: &[u8]) -> Result<()> {
        self.put(bytes)?;
        self.fill(bytes.len() as u64)
    }

    /// Fills the block that `len` bytes have begun.
    fn fill(&mut self, len: u64) -> Result<()> {
        self.blocks = self.blocks.saturating_add(len.div_ceil(BLOCK as u64));
        let used = usize::try_from(len % BLOCK as u64).unwrap_or(0);
        if used == 0 {
            return Ok(());
        }
        self.put([0; BLOCK].get(used..).unwrap_or_default())
    }

    fn end(&mut self) -> Result<()> {
        self.blocks(&[0; 2 * BLOCK])?;
        let left = (RECORD - self.blocks % RECORD) % RECORD;
        for _ in 0..left {
            self.put(&[0; BLOCK])?;
        }
        Ok(())
    }

    fn node(&mut self, path: &[u8], node: &Node, id: NodeId) -> Result<()> {
        // tar has no sockets, and a link to one would lead nowhere.
        if matches!(node.kind, Kind::Socket) {
            return Ok(());
        }
        let metadata = &node.metadata;
        let header = Header { path, link: b"", kind: b'0', size: 0, device: None, metadata };
        if node.links > 1 && !matches!(node.kind, Kind::Directory(_)) {
            if let Some(first) = self.first.get(&id).cloned() {
                return self.header(&Header { link: &first, kind: b'1', ..header }, &[]);
            }
            self.first.insert(id, path.to_vec());
        }
        match &node.kind {
            Kind::Directory(_) => self.header(&Header { kind: b'5', ..header }, &[]),
            Kind::Regular(file) => self.file(header, file),
            Kind::Symlink(target) => {
                self.header(&Header { link: target, kind: b'2', ..header }, &[])
            }
            Kind::CharDevice(device) => {
                let device = Some(cairn_vfs::decode_device(*device));
                self.header(&Header { kind: b'3', device, ..header }, &[])
            }
            Kind::BlockDevice(device) => {
                let device = Some(cairn_vfs::decode_device(*device));
                self.header(&Header { kind: b'4', device, ..header }, &[])
            }
            Kind::Fifo => self.header(&Header { kind: b'6', ..header }, &[]),
            Kind::Socket => Ok(()),
        }
    }

    /// A file with holes has GNU's sparse form 1.0: a map before the data.
    fn file(&mut self, header: Header<'_>, file: &RegularFile) -> Result<()> {
        let whole = match file.data.as_slice() {
            [] => file.size == 0,
            [data] => data.start == 0 && data.end == file.size,
            _ => false,
        };
        let spans = spans(&file.data, RANGES_MAX);
        let data: u64 = spans.iter().map(|span| span.end - span.start).sum();
        if whole {
            self.header(&Header { size: file.size, ..header }, &[])?;
        } else {
            let mut map = format!("{}\n", spans.len() + 1);
            for range in &spans {
                let _ = writeln!(map, "{}\n{}", range.start, range.end - range.start);
            }
            // An empty range marks the end.
            let _ = writeln!(map, "{}\n0", file.size);
            let mut map = map.into_bytes();
            map.resize(map.len().next_multiple_of(BLOCK), 0);
            let size = data.saturating_add(map.len() as u64);
            let real = file.size.to_string();
            let records: [(&[u8], &[u8]); 4] = [
                (b"GNU.sparse.major", b"1"),
                (b"GNU.sparse.minor", b"0"),
                (b"GNU.sparse.name", header.path),
                (b"GNU.sparse.realsize", real.as_bytes()),
            ];
            // Programs that do not know the form unpack the map and the data under this name.
            let (directory, name) = split(header.path);
            let path = [directory, b"GNUSparseFile.0/", name].concat();
            self.header(&Header { path: &path, size, ..header }, &records)?;
            self.blocks(&map)?;
        }
        let mut ranges = file.data.iter().peekable();
        for span in &spans {
            let mut at = span.start;
            while let Some(range) = ranges.next_if(|range| range.end <= span.end) {
                self.piecewise(range.start - at, &mut |_, buffer| {
                    buffer.fill(0);
                    Ok(())
                })?;
                let tree = self.tree;
                self.piecewise(range.end - range.start, &mut |done, buffer| {
                    tree.read(file, range.start + done, buffer)
                })?;
                at = range.end;
            }
        }
        self.fill(data)
    }

    /// Bytes that `read` gives, a piece at a time: it gets how many came before.
    fn piecewise(&mut self, len: u64, read: &mut ReadPiece<'_>) -> Result<()> {
        let (mut done, mut buffer) = (0, Vec::new());
        while done < len {
            let piece = (len - done).min(CHUNK);
            buffer.resize(usize::try_from(piece).unwrap_or(0), 0);
            read(done, &mut buffer)?;
            self.put(&buffer)?;
            done += piece;
        }
        Ok(())
    }

    /// The header of a member, after one with records, if it needs some.
    fn header(&mut self, of: &Header<'_>, records: &[(&[u8], &[u8])]) -> Result<()> {
        let mut extended = Vec::new();
        for (key, value) in records {
            record(&mut extended, key, value);
        }
        records_of(&mut extended, of, self.lists);
        if !extended.is_empty() {
            let (directory, name) = split(of.path);
            let path = [directory, b"PaxHeaders/", name].concat();
            let metadata = Metadata::new(0o644, (0, 0), Timestamp::default());
            let size = extended.len() as u64;
            let header = Header {
                path: &path,
                link: b"",
                kind: b'x',
                size,
                device: None,
                metadata: &metadata,
            };
            self.blocks(&ustar(&header))?;
            self.blocks(&extended)?;
        }
        self.blocks(&ustar(of))
    }
}

/// Ranges with data, neighbours together with the hole between them if there are more than `most`.
fn spans(data: &[Range<u64>], most: usize) -> Vec<Range<u64>> {
    let together = data.len().div_ceil(most).max(1);
    let span = |ranges: &[Range<u64>]| Some(ranges.first()?.start..ranges.last()?.end);
    data.chunks(together).filter_map(span).collect()
}

/// The directory with its slash, and the name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.strip_suffix(b"/").unwrap_or(path);
    let at = end.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    path.split_at(at)
}

/// `LENGTH KEY=VALUE\n`, where the length counts itself.
fn record(to: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut len = rest;
    while len != rest + len.to_string().len() {
        len = rest + len.to_string().len();
    }
    to.extend_from_slice(len.to_string().as_bytes());
    to.push(b' ');
    to.extend_from_slice(key);
    to.push(b'=');
    to.extend_from_slice(value);
    to.push(b'\n');
}

/// Records for what the header cannot hold.
fn records_of(to: &mut Vec<u8>, of: &Header<'_>, lists: Lists) {
    let metadata = of.metadata;
    let is_sparse = !to.is_empty();
    if of.path.len() > 100 && !is_sparse {
        record(to, b"path", of.path);
    }
    if of.link.len() > 100 {
        record(to, b"linkpath", of.link);
    }
    if of.size > NUMBER_12 {
        record(to, b"size", of.size.to_string().as_bytes());
    }
    for (key, id) in [(b"uid", metadata.uid), (b"gid", metadata.gid)] {
        if u64::from(id) > NUMBER_8 {
            record(to, key, id.to_string().as_bytes());
        }
    }
    if of.kind == b'x' {
        return;
    }
    let mtime = metadata.mtime;
    if mtime.nanoseconds > 0 || !u64::try_from(mtime.seconds).is_ok_and(|time| time <= NUMBER_12) {
        record(to, b"mtime", time(mtime).as_bytes());
    }
    if of.kind == b'1' {
        return;
    }
    for (key, other) in [(b"atime", metadata.atime), (b"ctime", metadata.ctime)] {
        if other != mtime {
            record(to, key, time(other).as_bytes());
        }
    }
    for xattr in &metadata.xattrs {
        let list = match &*xattr.name {
            _ if lists == Lists::AsAttributes => None,
            acl::ACCESS => Some(&b"SCHILY.acl.access"[..]),
            acl::DEFAULT => Some(&b"SCHILY.acl.default"[..]),
            _ => None,
        };
        let text = || Some(acl_text(&Acl::from_xattr(&xattr.value).ok()??));
        match list.and_then(|key| Some((key, text()?))) {
            Some((key, text)) => record(to, key, text.as_bytes()),
            None => record(to, &[b"SCHILY.xattr.", &*xattr.name].concat(), &xattr.value),
        }
    }
}

/// A list with numbers.
fn acl_text(list: &Acl) -> String {
    let mut text = String::new();
    for entry in list.entries() {
        let (tag, id) = match entry.tag {
            acl::Tag::UserObj => ("user", None),
            acl::Tag::User(id) => ("user", Some(id)),
            acl::Tag::GroupObj => ("group", None),
            acl::Tag::Group(id) => ("group", Some(id)),
            acl::Tag::Mask => ("mask", None),
            acl::Tag::Other => ("other", None),
        };
        let comma = if text.is_empty() { "" } else { "," };
        let id = id.map_or(String::new(), |id| id.to_string());
        let bit = |bit: u8, letter: char| if entry.permissions & bit != 0 { letter } else { '-' };
        let (r, w, x) = (bit(4, 'r'), bit(2, 'w'), bit(1, 'x'));
        let _ = write!(text, "{comma}{tag}:{id}:{r}{w}{x}");
    }
    text
}

/// Seconds with a fraction. Before 1970 the fraction leads away from 0.
fn time(of: Timestamp) -> String {
    let digits = |nanoseconds: u32| {
        let digits = format!("{nanoseconds:09}");
        digits.trim_end_matches('0').to_owned()
    };
    match (of.seconds, of.nanoseconds) {
        (seconds, 0) => seconds.to_string(),
        (seconds, nanoseconds) if seconds >= 0 => format!("{seconds}.{}", digits(nanoseconds)),
        (seconds, nanoseconds) => {
            let whole = seconds.saturating_add(1).unsigned_abs();
            format!("-{whole}.{}", digits(1_000_000_000 - nanoseconds))
        }
    }
}

/// A header block. Longer names are cut: records have them whole.
fn ustar(of: &Header<'_>) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, most: usize, bytes: &[u8]| {
        let places = block.iter_mut().skip(at).take(most);
        places.zip(bytes).for_each(|(to, from)| *to = *from);
    };
    let octal = |value: u64, digits: usize| format!("{value:0digits$o}\0").into_bytes();
    let metadata = of.metadata;
    let seconds = u64::try_from(metadata.mtime.seconds).unwrap_or(0);
    let small = |id: u32| if u64::from(id) > NUMBER_8 { 0 } else { id.into() };
    put(0, 100, of.path);
    put(100, 8, &octal(metadata.permissions.into(), 7));
    put(108, 8, &octal(small(metadata.uid), 7));
    put(116, 8, &octal(small(metadata.gid), 7));
    put(124, 12, &octal(if of.size > NUMBER_12 { 0 } else { of.size }, 11));
    put(136, 12, &octal(if seconds > NUMBER_12 { 0 } else { seconds }, 11));
    put(148, 8, b"        ");
    put(156, 1, &[of.kind]);
    put(157, 100, of.link);
    put(257, 8, b"ustar\x0000");
    if let Some((major, minor)) = of.device {
        put(329, 8, &octal(major.into(), 7));
        put(337, 8, &octal(minor.into(), 7));
    }
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    let text = format!("{sum:06o}\0 ");
    let places = block.iter_mut().skip(148).take(8);
    places.zip(text.as_bytes()).for_each(|(to, from)| *to = *from);
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_record_counts_itself() {
        for len in [1, 5, 88, 89, 90, 91, 92, 93, 985, 986, 987, 988, 9980] {
            let mut bytes = Vec::new();
            record(&mut bytes, b"path", &vec![b'x'; len]);
            let text = String::from_utf8(bytes.clone()).unwrap();
            assert_eq!(text.split(' ').next().unwrap().parse(), Ok(bytes.len()), "{len}");
        }
    }

    #[test]
    fn many_ranges_become_fewer() {
        let data: Vec<Range<u64>> = (0..7).map(|at| at * 10..at * 10 + 3).collect();
        assert_eq!(spans(&data, 7), data);
        assert_eq!(spans(&data, 3), [0..23, 30..53, 60..63]);
        assert!(spans(&[], 3).is_empty());
    }

    #[test]
    fn times_before_1970() {
        assert_eq!(time(Timestamp { seconds: -2, nanoseconds: 750_000_000 }), "-1.25");
        assert_eq!(time(Timestamp { seconds: -1, nanoseconds: 500_000_000 }), "-0.5");
        assert_eq!(time(Timestamp { seconds: 3, nanoseconds: 10 }), "3.00000001");
    }
}
