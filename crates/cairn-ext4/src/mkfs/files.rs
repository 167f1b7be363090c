//! The files of a new volume: the root, lost+found, and by the features the journal, the orphan
//! file and the inode of the reserved descriptor blocks.

use cairn_base::checksum::crc32c;
use cairn_base::{Ino, Pba};
use zerocopy::little_endian::U32;

use super::block_map;
use super::identity::Identity;
use super::journal as new_journal;
use super::output::Output;
use super::plan::Plan;
use crate::checksum::InodeSeed;
use crate::error::Result;
use crate::format::features::{Compat, Incompat};
use crate::format::inode::{Inode, mode};
use crate::format::layout::inodes;
use crate::format::orphan;

/// The inode of `lost+found`.
pub(super) const LOST_AND_FOUND: Ino = Ino(inodes::FIRST as u64);
/// Its name in the root.
pub(super) const LOST_AND_FOUND_NAME: &[u8] = b"lost+found";
const TAIL: usize = 12;
const TYPE_DIRECTORY: u8 = 2;
const TYPE_CHECKSUM: u8 = 0xde;
const DOUBLE_INDIRECT: usize = 13;

/// Writes all files and their records in group 0's inode table.
pub(super) fn write(plan: &mut Plan, output: &mut Output, identity: &Identity) -> Result<()> {
    let mut table = Table::new(plan);
    root(plan, output, &mut table, identity)?;
    lost_and_found(plan, output, &mut table, identity)?;
    system(plan, output, &mut table, identity)?;
    plan.descs[0].used_dirs = 2;
    table.write(plan, output)
}

/// Writes the files that have no name.
pub(super) fn system(
    plan: &mut Plan,
    output: &mut Output,
    table: &mut Table,
    identity: &Identity,
) -> Result<()> {
    plan.used_inodes = inodes::FIRST;
    if plan.layout.features.compat(Compat::RESIZE_INODE) {
        resize(plan, output, table, identity)?;
    }
    if plan.layout.features.compat(Compat::HAS_JOURNAL) {
        journal(plan, output, table, identity)?;
    }
    if plan.layout.features.compat(Compat::ORPHAN_FILE) {
        orphan_file(plan, output, table, identity)?;
    }
    Ok(())
}

/// The first records of group 0's inode table.
pub(super) struct Table {
    /// Whole blocks.
    pub(super) bytes: Vec<u8>,
}

impl Table {
    pub(super) fn new(plan: &Plan) -> Self {
        let records = (inodes::FIRST as usize + 1) * plan.layout.inode_size as usize;
        Self { bytes: vec![0; records.next_multiple_of(plan.layout.block_size as usize)] }
    }

    fn put(&mut self, plan: &Plan, ino: Ino, inode: &Inode) {
        let size = plan.layout.inode_size as usize;
        let at = (usize::try_from(ino.get()).expect("a small number") - 1) * size;
        inode.encode(ino, &plan.layout, &mut self.bytes[at..at + size]);
    }

    fn write(self, plan: &Plan, output: &mut Output) -> Result<()> {
        // The same batch may contain the zeros of the table.
        output.send()?;
        output.blocks(plan.descs[0].inode_table, self.bytes)
    }
}

fn new_inode(plan: &Plan, identity: &Identity, mode: u16, links: u32, blocks: u64) -> Inode {
    let mut inode = Inode::new(0, &plan.layout);
    inode.mode = mode;
    inode.links = links;
    inode.size = blocks * u64::from(plan.layout.block_size);
    (inode.atime, inode.mtime, inode.ctime) = (identity.now, identity.now, identity.now);
    if inode.extra_isize >= 24 {
        inode.crtime = identity.now;
    }
    inode
}

/// A directory block with the entries in order. The last one fills the block; a checksum is at the
/// end.
fn directory_block(plan: &Plan, entries: &[(Ino, &[u8])], seed: InodeSeed) -> Vec<u8> {
    let size = plan.layout.block_size as usize;
    let end = if seed.0.is_some() { size - TAIL } else { size };
    let typed = plan.layout.features.incompat(Incompat::FILETYPE);
    let mut block = vec![0; size];
    let mut at = 0;
    for (n, (ino, name)) in entries.iter().enumerate() {
        let len =
            if n + 1 == entries.len() { end - at } else { (8 + name.len()).next_multiple_of(4) };
        let kind = if typed && ino.get() != 0 { TYPE_DIRECTORY } else { 0 };
        put_entry(&mut block[at..], *ino, len, name, kind);
        at += len;
    }
    if let Some(seed) = seed.0 {
        put_entry(&mut block[end..], Ino(0), TAIL, &[], TYPE_CHECKSUM);
        let sum = crc32c(seed, &block[..end]);
        block[size - 4..].copy_from_slice(&sum.to_le_bytes());
    }
    block
}

fn put_entry(place: &mut [u8], ino: Ino, len: usize, name: &[u8], kind: u8) {
    let number = u32::try_from(ino.get()).expect("inode numbers have 32 bits");
    place[..4].copy_from_slice(&number.to_le_bytes());
    // A length of 65536 does not fit and is stored as 65535.
    place[4..6].copy_from_slice(&u16::try_from(len).unwrap_or(u16::MAX).to_le_bytes());
    place[6] = u8::try_from(name.len()).expect("names have at most 255 bytes");
    place[7] = kind;
    place[8..8 + name.len()].copy_from_slice(name);
}

fn root(
    plan: &mut Plan,
    output: &mut Output,
    table: &mut Table,
    identity: &Identity,
) -> Result<()> {
    let mut inode = new_inode(plan, identity, mode::DIRECTORY | 0o755, 3, 1);
    (inode.uid, inode.gid) = identity.owner;
    let seed = inode.seed(inodes::ROOT, &plan.layout);
    let runs = plan.take(1, 0)?;
    let entries: [(Ino, &[u8]); 3] =
        [(inodes::ROOT, b"."), (inodes::ROOT, b".."), (LOST_AND_FOUND, LOST_AND_FOUND_NAME)];
    output.blocks(runs[0].0, directory_block(plan, &entries, seed))?;
    block_map::store(plan, output, &mut inode, seed, &runs)?;
    table.put(plan, inodes::ROOT, &inode);
    Ok(())
}

/// At least 16 KiB and two blocks, and at most twelve blocks, so that fsck need not allocate
/// blocks.
pub(super) const fn lost_and_found_blocks(block_size: u32) -> u64 {
    match 16384 / block_size as u64 {
        0..=2 => 2,
        blocks if blocks > 12 => 12,
        blocks => blocks,
    }
}

pub(super) fn lost_and_found(
    plan: &mut Plan,
    output: &mut Output,
    table: &mut Table,
    identity: &Identity,
) -> Result<()> {
    let blocks = lost_and_found_blocks(plan.layout.block_size);
    let mut inode = new_inode(plan, identity, mode::DIRECTORY | 0o700, 2, blocks);
    let seed = inode.seed(LOST_AND_FOUND, &plan.layout);
    let runs = plan.take(blocks, 0)?;
    let mut logical = 0;
    for (start, len) in &runs {
        for n in 0..*len {
            let dots: [(Ino, &[u8]); 2] = [(LOST_AND_FOUND, b"."), (inodes::ROOT, b"..")];
            let none: [(Ino, &[u8]); 1] = [(Ino(0), b"")];
            let entries: &[_] = if logical == 0 { &dots } else { &none };
            output.blocks(Pba(start.get() + n), directory_block(plan, entries, seed))?;
            logical += 1;
        }
    }
    block_map::store(plan, output, &mut inode, seed, &runs)?;
    table.put(plan, LOST_AND_FOUND, &inode);
    Ok(())
}

/// Inode 7 maps the reserved descriptor blocks. Its double indirect block points to those behind
/// the primary descriptors. Each of these is a pointer block for the blocks at its place in the
/// backup groups. e2fsck wants the inode also where no block is reserved: with large blocks, one
/// block of descriptors is enough for a volume of any size.
fn resize(
    plan: &mut Plan,
    output: &mut Output,
    table: &mut Table,
    identity: &Identity,
) -> Result<()> {
    let layout = plan.layout;
    let words = u64::from(layout.block_size) / 4;
    let mut inode = new_inode(plan, identity, mode::REGULAR | 0o600, 1, words * words + words + 12);
    let backups: Vec<u32> = (1..layout.groups).filter(|group| layout.backups(*group)).collect();
    let first =
        layout.superblock_block(0).get() + 1 + u64::from(layout.contiguous_descriptor_blocks());
    let mut top = vec![0; layout.block_size as usize];
    let places = top.as_chunks_mut::<4>().0;
    for index in 0..layout.reserved_gdt_blocks {
        let primary = first + u64::from(index);
        let slot = (layout.contiguous_descriptor_blocks() + index) as usize % places.len();
        places[slot] = block_map::narrow(Pba(primary));
        let mut block = Vec::with_capacity(layout.block_size as usize);
        for group in &backups {
            let twin = primary + u64::from(*group) * u64::from(layout.blocks_per_group);
            block.extend(block_map::narrow(Pba(twin)));
        }
        block.resize(layout.block_size as usize, 0);
        output.blocks(Pba(primary), block)?;
    }
    let runs = plan.take(1, 0)?;
    output.blocks(runs[0].0, top)?;
    inode.block[DOUBLE_INDIRECT * 4..][..4].copy_from_slice(&block_map::narrow(runs[0].0));
    let owned = 1 + u64::from(layout.reserved_gdt_blocks) * (1 + backups.len() as u64);
    inode.blocks_512 = owned << (layout.block_bits - 9);
    table.put(plan, inodes::RESIZE, &inode);
    Ok(())
}

/// An empty jbd2 log in the middle of the volume.
fn journal(
    plan: &mut Plan,
    output: &mut Output,
    table: &mut Table,
    identity: &Identity,
) -> Result<()> {
    let blocks = plan.journal_blocks;
    let mut inode = new_inode(plan, identity, mode::REGULAR | 0o600, 1, blocks);
    let middle = plan.layout.flex_start(plan.layout.groups / 2);
    let runs = plan.take(blocks, middle)?;
    for (start, len) in &runs {
        output.zeros(*start, *len)?;
    }
    let length = u32::try_from(blocks).expect("a journal has less than 2^32 blocks");
    output.send()?;
    output.blocks(runs[0].0, new_journal::superblock(plan.layout.block_size, length))?;
    let seed = inode.seed(inodes::JOURNAL, &plan.layout);
    block_map::store(plan, output, &mut inode, seed, &runs)?;
    table.put(plan, inodes::JOURNAL, &inode);
    new_journal::back_up(&mut plan.superblock, &inode);
    Ok(())
}

fn orphan_file(
    plan: &mut Plan,
    output: &mut Output,
    table: &mut Table,
    identity: &Identity,
) -> Result<()> {
    const INO: Ino = Ino(inodes::FIRST as u64 + 1);
    let blocks = match plan.layout.blocks_count {
        0..0x2_0000 => 32,
        count @ 0x2_0000..0x20_0000 => count / 4096,
        _ => 512,
    };
    let mut inode = new_inode(plan, identity, mode::REGULAR | 0o600, 1, blocks);
    let seed = inode.seed(INO, &plan.layout);
    let runs = plan.take(blocks, 0)?;
    for (start, len) in &runs {
        for pba in (start.get()..start.get() + len).map(Pba) {
            let mut block = vec![0; plan.layout.block_size as usize];
            orphan::init(&mut block, pba, seed);
            output.blocks(pba, block)?;
        }
    }
    block_map::store(plan, output, &mut inode, seed, &runs)?;
    table.put(plan, INO, &inode);
    plan.superblock.raw.s_orphan_file_inum = U32::new(inodes::FIRST + 1);
    plan.used_inodes = inodes::FIRST + 1;
    Ok(())
}
