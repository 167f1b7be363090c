//! Inodes as the NAT has them, read by the form and the type that they prove: as the check judges
//! them. What contradicts itself is copied as it is, and told.

use cairn_cache::block::Image;
use cairn_vfs::FileKind;

use crate::error::Result;
use crate::form::{Around, shape, types};
use crate::format::inode::InlineFlags;
use crate::format::layout::Layout;
use crate::format::units::{BlockAddr, Nid};
use crate::format::{Inode, NodeFooter, Summary};
use crate::raw::RawVolume;
use crate::raw::tree::{Below, Pointer, Visitor, walk};

/// What lies around an inode of a damaged volume. What cannot be read shows nothing.
struct Seen<'v>(&'v RawVolume);

impl Around for Seen<'_> {
    fn layout(&self) -> &Layout {
        &self.0.layout
    }

    fn owner(&mut self, addr: BlockAddr) -> Result<Option<(bool, Summary)>> {
        Ok(self.0.owner(addr))
    }

    fn block(&mut self, addr: BlockAddr) -> Result<Option<Vec<u8>>> {
        Ok(self.0.block(addr.pba()).ok().map(|image| image.to_vec()))
    }

    fn root(&mut self) -> Result<Option<Inode>> {
        Ok(self.0.inode(Nid::ROOT).ok().map(|(_, _, record)| record))
    }
}

/// An inode, and what is wrong with its record.
pub(super) type Judged = (Image, Inode, Option<String>);

/// An inode as the NAT has it.
///
/// # Errors
/// Its block is not there, is another's or has a wrong checksum, or the inode cannot be read.
pub(super) fn inode(volume: &RawVolume, ino: Nid) -> Result<Judged, String> {
    inode_at(volume, ino, volume.node(ino)?)
}

/// An inode in this block.
///
/// # Errors
/// As [`inode`].
pub(super) fn inode_at(
    volume: &RawVolume,
    ino: Nid,
    (addr, image): (BlockAddr, Image),
) -> Result<Judged, String> {
    // What is newer than the checkpoint has no summaries yet.
    if volume.loaded.is_none() || volume.newer.contains_key(&ino) {
        let record = volume.decode(ino, addr, &image).map_err(|error| error.to_string())?;
        return Ok((image, record, None));
    }
    volume.verify(ino, addr, &image).map_err(|error| error.to_string())?;
    read(volume, ino, image)
}

/// An inode with a wrong checksum, as the NAT has it, if it can be read.
pub(super) fn unsealed(volume: &RawVolume, ino: Nid) -> Option<Judged> {
    let (addr, image) = volume.node(ino).ok()?;
    NodeFooter::read(&image).check(ino, ino, addr).ok()?;
    let why = volume.verify(ino, addr, &image).err()?;
    let (image, record, wrong) = read(volume, ino, image).ok()?;
    let what = format!("its inode is damaged, and so may be the copy: {why}");
    let what = wrong.into_iter().fold(what, |what, wrong| format!("{what}; {wrong}"));
    Some((image, record, Some(what)))
}

/// An inode as its block shows it.
fn read(volume: &RawVolume, ino: Nid, image: Image) -> Result<Judged, String> {
    let judged = judge(volume, ino, image).map_err(|error| error.to_string())?;
    let (mut image, mut wrong) = judged;
    let decode = |image: &[u8]| {
        let decoded = Inode::decode(image, ino, volume.layout.features);
        decoded.map_err(|error| error.to_string())
    };
    let mut record = decode(&image)?;
    if wrong.is_none()
        && let Some(change) = by_end(volume, (ino, &record, &image))?
    {
        let mut other = image.to_vec();
        if shape::set(&mut other, change.field, change.right) {
            (record, image) = (decode(&other)?, other.into());
            wrong = Some(said(change));
        }
    }
    if wrong.is_none() {
        wrong = doubt(volume, (ino, &record, &image)).map_err(|error| error.to_string())?;
    }
    Ok((image, record, wrong))
}

fn said(shape::Change { field, stored, right }: shape::Change) -> String {
    format!("{field} is {stored}, and it was read by {right}, as it shows itself")
}

/// The block behind the last one that is mapped or reserved. None if a node cannot be followed.
struct End(Option<u64>);

impl Visitor for End {
    fn node(&mut self, _: Below, _: BlockAddr) {}

    fn pointer(&mut self, pointer: Pointer) {
        self.0 = self.0.map(|end| end.max(pointer.block.saturating_add(1)));
    }

    fn fault(&mut self, _: Below, _: String) {
        self.0 = None;
    }
}

/// The field of a file with nodes by which its blocks would not end where it does.
fn by_end(
    volume: &RawVolume,
    (ino, record, image): (Nid, &Inode, &[u8]),
) -> Result<Option<shape::Change>, String> {
    let is_inline = record.inline.intersects(InlineFlags::DATA | InlineFlags::DENTRY);
    let has_nodes = record.nids.iter().any(|nid| !nid.is_none());
    if record.kind != FileKind::Regular || is_inline || !has_nodes {
        return Ok(None);
    }
    let mut end = End(Some(0));
    walk(volume, ino, (record, image), &mut end);
    let Some(end) = end.0 else { return Ok(None) };
    let found = shape::of_nodes(&mut Seen(volume), (ino, record, image), end);
    found.map_err(|error| error.to_string())
}

/// The block of an inode as it proves to be, and what its record says instead.
fn judge(volume: &RawVolume, ino: Nid, image: Image) -> Result<(Image, Option<String>)> {
    let around = &mut Seen(volume);
    let (mut image, mut wrong) = (image, None);
    if let Some((change, other)) = shape::proved(around, ino, &image)? {
        image = other.into();
        wrong = Some(said(change));
    }
    let found = match types::proved(around, ino, &image)? {
        None => other_type(around, ino, &image)?.map(|kind| (kind, types::with(&image, kind))),
        found => found,
    };
    if let Some((kind, other)) = found {
        let stored = types::stored(&image).map_or("of no type", FileKind::words);
        let what = format!("i_mode says {stored}, and it is a {}", kind.words());
        image = other.into();
        wrong = Some(wrong.map_or_else(|| what.clone(), |before| format!("{before}; {what}")));
    }
    Ok((image, wrong))
}

/// The type of what is called a file and begins with the entry `.`, or is called a directory and
/// does not.
fn other_type(around: &mut Seen<'_>, ino: Nid, image: &[u8]) -> Result<Option<FileKind>> {
    use FileKind::{Directory, Regular, Symlink};
    let stored = types::stored(image).filter(|kind| matches!(kind, Regular | Symlink | Directory));
    let Some(stored) = stored else { return Ok(None) };
    let shown = types::shown(around, (ino, image), None)?;
    Ok(shown.filter(|shown| (*shown == Directory) != (stored == Directory)))
}

/// What contradicts itself in an inode, and proves nothing else.
fn doubt(volume: &RawVolume, (ino, record, image): (Nid, &Inode, &[u8])) -> Result<Option<String>> {
    if let Err(error) = record.check_body(image, ino, &volume.layout) {
        return Ok(Some(format!("{error}: what was copied may be wrong")));
    }
    let end = record.inline_end(image);
    let is_inline = record.inline.contains(InlineFlags::DATA);
    if is_inline && record.kind == FileKind::Regular && end > record.size {
        let what = "and the contents in the inode go on to byte";
        return Ok(Some(format!("i_size is {}, {what} {end}: they were cut off", record.size)));
    }
    let fits = shape::fits(&mut Seen(volume), (ino, image))?;
    let what = "its record and what it holds contradict each other: what was copied may be wrong";
    Ok((!fits).then(|| what.into()))
}
