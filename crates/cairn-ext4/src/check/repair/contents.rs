//! Contents that are made anew: of inline files, empty directories, the root, the resize inode.

use cairn_base::units::{as_index, as_u64};
use cairn_base::{Ino, Pba};
use cairn_check::{Finding, Value};
use cairn_vfs::FileKind;

use super::super::each_entry::inline_tail;
use super::super::kinds;
use super::super::map_bit;
use super::super::visitor::Run;
use super::mender::Mender;
use super::policy::Truncate;
use super::{rewrite, runs};
use crate::error::Result;
use crate::format::dir_entry::{DirFormat, MIN_REC_LEN, pack_leaf};
use crate::format::features::{Compat, Incompat};
use crate::format::indirect;
use crate::format::inode::{Inode as Record, InodeFlags, mode};
use crate::format::layout::inodes;
use crate::format::xattr::MAGIC;

/// Bytes of an inode's contents in `i_block`.
const IN_BLOCK: u64 = 60;
/// The slot of the double indirect block in `i_block`.
const DOUBLE: usize = 13;

/// Gives the record the volume's usual number of fields. Attributes that begin elsewhere are lost.
pub(super) fn set_extra_size(record: &mut Record, size: u16) {
    let old = std::mem::take(&mut record.extra);
    let fields = usize::from(size).saturating_sub(usize::from(record.extra_isize));
    let mut extra = old.get(fields.min(old.len())..).unwrap_or_default().to_vec();
    if extra.first_chunk() != Some(&MAGIC.to_le_bytes()) {
        extra.fill(0);
    }
    record.grow_extra(size, extra);
}

/// The format of a directory's blocks.
pub(super) fn format(mender: &Mender<'_>, ino: Ino, record: &Record) -> DirFormat {
    let layout = &mender.state.layout;
    DirFormat {
        block_size: as_index(layout.block_size),
        filetype: layout.features.incompat(Incompat::FILETYPE),
        seed: record.seed(ino, layout),
        inodes_count: layout.inodes_count,
    }
}

/// Makes a block with `.` and `..`, and gives it to the directory. False if there is no room.
pub(super) fn make_empty(
    mender: &Mender<'_>,
    ino: Ino,
    record: &mut Record,
    parent: u32,
) -> Result<bool> {
    let Some(pba) = mender.allocate_block() else { return Ok(false) };
    let format = format(mender, ino, record);
    let kind = format.file_type(FileKind::Directory);
    let this = u32::try_from(ino.get()).unwrap_or(0);
    let dots: [(u32, u8, &[u8]); 2] = [(this, kind, b"."), (parent, kind, b"..")];
    let mut block = mender.empty_block();
    pack_leaf(&mut block, &format, dots);
    mender.write(pba, block)?;
    record.size = mender.state.layout.block_size.into();
    record.flags.remove(InodeFlags::INDEX);
    let run = Run { start: 0, pba, len: 1, unwritten: false };
    if !runs::store(mender, ino, record, &[run])? {
        return Ok(false);
    }
    record.blocks_512 = mender.state.cluster_blocks() << mender.state.units();
    Ok(true)
}

/// Contents in an inode: cut to what is there.
pub(super) fn mend_inline(mender: &mut Mender<'_>, ino: Ino, finding: &Finding) -> Result<()> {
    let Some(record) = mender.state.record(ino) else { return Ok(()) };
    let kind = FileKind::from_mode(record.mode.into());
    let tail = inline_tail(&record.extra, ino);
    let held = as_u64(tail.len()).saturating_add(IN_BLOCK);
    let has_tail = finding.computed.is_some();
    let what = match kind {
        Some(FileKind::Symlink) => {
            mender.clear(ino)?;
            "the symbolic link"
        }
        Some(FileKind::Directory) if has_tail => {
            mender.edit(ino, |record| record.size = held)?;
            "names behind the end"
        }
        _ if has_tail => {
            mender.edit(ino, |record| record.size = record.size.min(held))?;
            "the end of the file"
        }
        // Without the attribute, nothing says that there are contents.
        _ => {
            let layout = mender.state.layout;
            mender.edit(ino, |record| {
                record.flags.remove(InodeFlags::INLINE_DATA);
                record.size = 0;
                crate::inode::init_block_map(&layout, record);
            })?;
            "the contents"
        }
    };
    mender.lose(finding, ino, what);
    Ok(())
}

/// Makes the root a directory: with the entries that it has, if it has some.
pub(super) fn make_root(mender: &mut Mender<'_>, finding: &Finding) -> Result<()> {
    let ino = inodes::ROOT;
    let Some(record) = mender.state.record(ino) else { return Ok(()) };
    let found = runs::collect(mender.state, ino, &record);
    let first = found.runs.first().filter(|run| found.is_sound && run.start == 0);
    let has_dots = match first {
        Some(run) => {
            let block = mender.read(run.pba)?;
            block.get(8..9) == Some(b".") && block.get(20..22) == Some(b"..")
        }
        None => false,
    };
    if has_dots && record.flags.contains(InodeFlags::EXTENTS) == is_mapped_by_extents(mender) {
        mender.edit(ino, |record| {
            record.mode = mode::DIRECTORY | record.mode & 0o777 | 0o700;
            record.dtime = 0;
        })?;
        mender.step(finding);
        return Ok(());
    }
    let mut record = new_directory(mender, 0o755);
    if make_empty(mender, ino, &mut record, 2)? {
        mender.edit_bytes(ino, |bytes| record.encode(ino, &mender.state.layout, bytes))?;
        mender.lose(finding, ino, "the names in the root");
    }
    Ok(())
}

/// Sets a size. A directory with holes is made anew without them.
pub(super) fn set_size(mender: &Mender<'_>, ino: Ino, size: u64) -> Result<bool> {
    let open = || super::super::directory::open(mender.state, ino);
    let facts = mender.state.inodes.get(ino.get());
    if facts.is_some_and(super::super::facts::Facts::is_directory)
        && let Some(mut directory) = open()
    {
        let blocks = directory.runs.iter().fold(0, |all: u64, run| all.saturating_add(run.len));
        if size.checked_div(mender.state.layout.block_size.into()) != Some(blocks) {
            directory.blocks = u64::MAX;
            return super::rebuild::mend(mender, &directory);
        }
    }
    mender.edit(ino, |record| record.size = size)
}

/// Gives a file the size that its blocks imply, or removes those behind its end.
pub(super) fn set_size_of_file(mender: &mut Mender<'_>, ino: Ino, finding: &Finding) -> Result<()> {
    if finding.place.field == Some("i_block") {
        let Some(mut record) = mender.state.record(ino) else { return Ok(()) };
        let blocks = record.size.div_ceil(mender.state.layout.block_size.into());
        rewrite::rewrite(mender, ino, &mut record, &mut Truncate { blocks })?;
        if mender.edit(ino, |stored| stored.block = record.block)? {
            mender.lose(finding, ino, "blocks behind the end of the file");
        }
        return Ok(());
    }
    // One bit of the map may be wrong as well as one of the size.
    if let Some(wrong) = map_bit::find(mender.state, ino).filter(|bit| bit.is_doubted) {
        let mut block = mender.read(wrong.pba)?;
        block.iter_mut().skip(wrong.at).take(1).for_each(|byte| *byte = wrong.right);
        mender.write(wrong.pba, block)?;
        mender.lose(finding, ino, "the place of its last blocks: the size may be wrong instead");
        return Ok(());
    }
    let size = finding.computed.as_ref().and_then(Value::number);
    let Some(size) = size else { return Ok(()) };
    if mender.edit(ino, |record| record.size = size)? {
        mender.lose(finding, ino, "the size: the end of the file may have other bytes");
    }
    Ok(())
}

fn is_mapped_by_extents(mender: &Mender<'_>) -> bool {
    mender.state.layout.features.incompat(Incompat::EXTENTS)
}

/// Makes the inode of the reserved descriptor blocks anew.
pub(super) fn mend_resize(mender: &mut Mender<'_>, findings: &[&Finding]) -> Result<()> {
    let (state, ino) = (mender.state, inodes::RESIZE);
    let layout = &state.layout;
    let is_useless = layout.features.incompat(Incompat::META_BG);
    if is_useless {
        // Linux refuses the two features together.
        mender.edit_superblock(|superblock| {
            let mut features = superblock.features();
            features.compat.remove(Compat::RESIZE_INODE);
            superblock.set_features(features);
            superblock.raw.s_reserved_gdt_blocks = 0.into();
        })?;
    }
    if is_useless || !layout.features.compat(Compat::RESIZE_INODE) {
        mender.clear(ino)?;
        findings.iter().for_each(|finding| mender.step(finding));
        return Ok(());
    }
    let first = layout.superblock_block(0).get().saturating_add(1);
    let first = first.saturating_add(layout.contiguous_descriptor_blocks().into());
    let backups: Vec<u32> = (1..layout.groups).filter(|group| layout.backups(*group)).collect();
    let words = layout.block_size / 4;
    let mut top = vec![0; as_index(words)];
    for index in 0..layout.reserved_gdt_blocks {
        let primary = first.saturating_add(index.into());
        let slot = layout.contiguous_descriptor_blocks().saturating_add(index);
        let slot = as_index(slot.checked_rem(words).unwrap_or(0));
        if let Some(slot) = top.get_mut(slot) {
            *slot = u32::try_from(primary).unwrap_or(0);
        }
        let twin = |group: &u32| {
            let ahead = u64::from(*group).saturating_mul(layout.blocks_per_group.into());
            u32::try_from(primary.saturating_add(ahead)).unwrap_or(0)
        };
        let twins: Vec<u32> = backups.iter().map(twin).collect();
        let mut block = mender.empty_block();
        indirect::encode(&twins, &mut block);
        mender.write(Pba(primary), block)?;
    }
    let Some(place) = mender.allocate_block() else { return Ok(()) };
    let mut block = mender.empty_block();
    indirect::encode(&top, &mut block);
    mender.write(place, block)?;
    let mut record = Record::new(0, layout);
    record.mode = mode::REGULAR | 0o600;
    record.links = 1;
    let now = cairn_vfs::Timestamp { seconds: i64::from(mender.now), nanoseconds: 0 };
    (record.atime, record.mtime, record.ctime) = (now, now, now);
    let words = u64::from(words);
    let blocks = words.saturating_mul(words).saturating_add(words).saturating_add(12);
    record.size = blocks.saturating_mul(layout.block_size.into());
    let mut slots = indirect::decode_inode(&record.block);
    if let Some(slot) = slots.get_mut(DOUBLE) {
        *slot = u32::try_from(place.get()).unwrap_or(0);
    }
    indirect::encode(&slots, &mut record.block);
    let copies = as_u64(backups.len()).saturating_add(1);
    let owned = u64::from(layout.reserved_gdt_blocks).saturating_mul(copies).saturating_add(1);
    record.blocks_512 = owned.saturating_mul(state.cluster_blocks()) << state.units();
    mender.edit_bytes(ino, |bytes| record.encode(ino, layout, bytes))?;
    findings.iter().for_each(|finding| mender.step(finding));
    Ok(())
}

/// Gives a directory without blocks an empty one.
pub(super) fn fill_empty(mender: &mut Mender<'_>, ino: Ino, finding: &Finding) -> Result<bool> {
    debug_assert!(finding.kind.code == kinds::DIRECTORY_HOLE.code, "{}", finding.kind.code);
    let Some(mut record) = mender.state.record(ino) else { return Ok(false) };
    let facts = mender.state.inodes.get(ino.get());
    let parent = facts.map_or(0, super::super::facts::Facts::parent);
    let root = u32::try_from(inodes::ROOT.get()).unwrap_or(0);
    let parent = if parent == 0 || ino == inodes::ROOT { root } else { parent };
    debug_assert!(mender.state.source.block_bytes() > MIN_REC_LEN, "a block holds two entries");
    if !make_empty(mender, ino, &mut record, parent)? {
        return Ok(false);
    }
    let layout = mender.state.layout;
    mender.edit_bytes(ino, |bytes| record.encode(ino, &layout, bytes))
}

/// An inode for a directory that the repair makes.
pub(super) fn new_directory(mender: &Mender<'_>, permissions: u16) -> Record {
    let layout = &mender.state.layout;
    let mut record = Record::new(0, layout);
    record.mode = mode::DIRECTORY | permissions;
    record.links = 2;
    let now = cairn_vfs::Timestamp { seconds: i64::from(mender.now), nanoseconds: 0 };
    (record.atime, record.mtime, record.ctime) = (now, now, now);
    record.file_acl = Pba(0);
    crate::inode::init_block_map(layout, &mut record);
    record
}
