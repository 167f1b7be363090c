//! The type that an inode's contents show: a directory by the entry `.`, a link by its target, and
//! a file by inline data or pointers that fit the inode's form.

use std::ops::Range;

use cairn_vfs::FileKind;

use super::{Around, contents, shape};
use crate::error::Result;
use crate::format::Inode;
use crate::format::block::is_zero;
use crate::format::inode::InlineFlags;
use crate::format::units::{BLOCK_BYTES, Nid};

/// Where an inode has its type and permissions.
const MODE: Range<usize> = 0..2;
const INLINE_AT: usize = 3;
/// Permissions of every symbolic link.
const LINK_PERMISSIONS: u16 = 0o777;

/// The block of an inode with the type that its contents show, if they are impossible with its own
/// one.
///
/// # Errors
/// The device's.
pub(crate) fn proved(
    around: &mut dyn Around,
    ino: Nid,
    image: &[u8],
) -> Result<Option<(FileKind, Vec<u8>)>> {
    let features = around.layout().features;
    let is_possible = match Inode::decode(image, ino, features) {
        Ok(record) => !is_special(record.kind) || shape::fits(around, (ino, image))?,
        Err(_) => false,
    };
    if is_possible {
        return Ok(None);
    }
    let Some(kind) = shown(around, (ino, image), None)? else { return Ok(None) };
    if stored(image) == Some(kind) {
        return Ok(None);
    }
    let other = with(image, kind);
    Ok(Inode::decode(&other, ino, features).is_ok().then_some((kind, other)))
}

/// What the type of an inode is, by the three that say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The one in `i_mode`.
    Stored,
    /// The one of its contents and its entry.
    Proved,
    /// Nothing is proved.
    Doubt,
}

/// Judges the type of an inode that contradicts an entry or contents. Also returns the type that
/// its contents show.
///
/// # Errors
/// The device's.
pub(crate) fn judge(
    around: &mut dyn Around,
    (ino, image): (Nid, &[u8]),
    entry: Option<FileKind>,
) -> Result<(Verdict, Option<FileKind>)> {
    let contents = shown(around, (ino, image), entry)?;
    let mode = stored(image);
    let texts = [Some(FileKind::Regular), Some(FileKind::Symlink)];
    // A file of one line may look as a link does.
    let is_either = mode != entry
        && texts.contains(&mode)
        && texts.contains(&entry)
        && shown(around, (ino, image), None)? == Some(FileKind::Symlink);
    let verdict = match contents {
        None => Verdict::Doubt,
        Some(_) if is_either => Verdict::Doubt,
        _ if contents == mode => Verdict::Stored,
        _ if contents == entry => Verdict::Proved,
        _ => Verdict::Doubt,
    };
    Ok((verdict, contents))
}

/// The type that an inode's contents show. Numbers of devices have no mark: they need an entry.
///
/// # Errors
/// The device's.
pub(crate) fn shown(
    around: &mut dyn Around,
    (ino, image): (Nid, &[u8]),
    entry: Option<FileKind>,
) -> Result<Option<FileKind>> {
    let flags = InlineFlags::from_bits_retain(image.get(INLINE_AT).copied().unwrap_or(0));
    let is_inline = flags.intersects(InlineFlags::DATA | InlineFlags::DENTRY);
    let directory = with(image, FileKind::Directory);
    let layout = *around.layout();
    let features = layout.features;
    if let Ok(record) = Inode::decode(&directory, ino, features)
        && (!is_inline || shape::fits(around, (ino, &directory))?)
        && let Some(bytes) = first_block(around, (&record, &directory))?
        && shape::begins_with_itself(&bytes, ino)
    {
        return Ok(Some(FileKind::Directory));
    }
    let file = with(image, FileKind::Regular);
    if let Ok(record) = Inode::decode(&file, ino, features)
        && shape::fits(around, (ino, &file))?
    {
        let mut pointers = record.data_pointers(&file);
        let has_pointers = pointers.any(|addr| layout.in_main(addr))
            || record.nids.iter().any(|nid| !nid.is_none());
        if is_inline || has_pointers {
            let is_link = entry != Some(FileKind::Regular) && is_link(around, &record, &file)?;
            return Ok(Some(if is_link { FileKind::Symlink } else { FileKind::Regular }));
        }
    }
    let device = entry.filter(|kind| matches!(kind, FileKind::CharDevice | FileKind::BlockDevice));
    if let Some(kind) = device.filter(|_| !is_inline)
        && let device = with(image, kind)
        && let Ok(record) = Inode::decode(&device, ino, features)
        && record.data_pointers(&device).take(2).any(|word| word.get() != 0)
        && shape::fits(around, (ino, &device))?
    {
        return Ok(Some(kind));
    }
    Ok(None)
}

/// Inline entries, or the first block.
fn first_block(
    around: &mut dyn Around,
    (record, image): (&Inode, &[u8]),
) -> Result<Option<Vec<u8>>> {
    if record.inline.contains(InlineFlags::DENTRY) {
        return Ok(image.get(record.inline_data_range()).map(<[u8]>::to_vec));
    }
    contents(around, record, image)
}

/// Are the contents of an inode those of a link: a line of text as long as the size, and nothing
/// behind it?
fn is_link(around: &mut dyn Around, record: &Inode, image: &[u8]) -> Result<bool> {
    if record.permissions != LINK_PERMISSIONS || !(1..BLOCK_BYTES).contains(&record.size) {
        return Ok(false);
    }
    let Some(bytes) = contents(around, record, image)? else {
        return Ok(false);
    };
    let len = usize::try_from(record.size).unwrap_or(usize::MAX);
    let Some((target, rest)) = bytes.split_at_checked(len) else { return Ok(false) };
    // Some writers count the NUL after the target in the size.
    let target = target.strip_suffix(&[0]).unwrap_or(target);
    Ok(!target.is_empty() && !target.contains(&0) && !target.contains(&b'\n') && is_zero(rest))
}

const fn is_special(kind: FileKind) -> bool {
    !matches!(kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink)
}

fn mode(image: &[u8]) -> u16 {
    let bytes = image.get(MODE).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u16::from_le_bytes(*bytes))
}

/// The type in `i_mode`.
pub(crate) fn stored(image: &[u8]) -> Option<FileKind> {
    FileKind::from_mode(mode(image).into())
}

/// The block of an inode with another type.
pub(crate) fn with(image: &[u8], kind: FileKind) -> Vec<u8> {
    let bits = u16::try_from(kind.mode_bits()).unwrap_or_default();
    let mode = bits | mode(image) & 0o7777;
    let mut image = image.to_vec();
    if let Some(place) = image.get_mut(MODE) {
        place.copy_from_slice(&mode.to_le_bytes());
    }
    image
}
