//! The clusters of a compressed file: the first pointer of a compressed one is a mark, blocks with
//! the packed data follow, and the slots that compression saves are reserved or free.

use cairn_check::{Finding, Place};

use super::context::{Context, Scratch};
use super::kinds;
use crate::compress;
use crate::error::{Error, Result};
use crate::format::Inode;
use crate::format::inode::InlineFlags;
use crate::format::units::{BlockAddr, Nid};

/// Clusters have at most two to this many blocks.
const MOST_LOG: u8 = 8;
/// Most blocks behind a mark.
const MOST: usize = 255;
/// A cluster that no reader can read.
const NO_DATA: &str = "no block of data follows the mark of a cluster";
/// The field of a finding about a mark that is lost, which no count tells.
pub(super) const LOST_MARK: &str = "mark";

/// Follows the pointers of a file, cluster by cluster.
pub(super) struct Clusters {
    /// Blocks of a cluster, if the file is compressed.
    blocks: Option<u32>,
    /// Saved blocks were given back: marks take no space then.
    released: bool,
    /// The present cluster is compressed.
    inside: bool,
    /// The pointer before this one is its mark.
    follows_mark: bool,
    saved: u64,
    /// The first packed cluster: the file block of its mark, and the blocks that follow it.
    packed: Option<(u64, Vec<BlockAddr>)>,
    /// These go on.
    goes_on: bool,
    /// A cluster without a mark whose saved blocks may have been given back: its first block, and
    /// its pointers as far as they were seen.
    unmarked: (Option<u64>, Vec<BlockAddr>),
}

impl Clusters {
    pub(super) fn new(record: &Inode) -> Self {
        Self {
            blocks: record.cluster_blocks(),
            released: record.inline.contains(InlineFlags::COMPRESS_RELEASED),
            inside: false,
            follows_mark: false,
            saved: 0,
            packed: None,
            goes_on: false,
            unmarked: (None, Vec::new()),
        }
    }

    /// Is the file compressed?
    pub(super) const fn is_active(&self) -> bool {
        self.blocks.is_some()
    }

    /// Does the mark of a cluster count as a block?
    pub(super) const fn marks_count(&self) -> bool {
        !self.released
    }

    /// Clusters do not cross nodes.
    pub(super) const fn end_of_node(&mut self) {
        (self.inside, self.goes_on) = (false, false);
    }

    /// A pointer of the file. What is wrong with it, if anything is.
    pub(super) fn see(&mut self, block: u64, addr: BlockAddr) -> Option<&'static str> {
        let Some(blocks) = self.blocks else {
            let wrong = addr == BlockAddr::COMPRESS;
            return wrong.then_some("a mark of a cluster in a file that is not compressed");
        };
        let starts = block.checked_rem(blocks.into()) == Some(0);
        if starts {
            self.unmarked.0 = (self.released && compress::may_lack_mark(addr)).then_some(block);
            self.unmarked.1.clear();
        }
        if self.unmarked.0.is_some() {
            self.unmarked.1.push(addr);
        }
        let is_head = std::mem::take(&mut self.follows_mark);
        let is_empty = is_head && !addr.is_address();
        if is_head && !is_empty && self.packed.is_none() {
            let start = block.saturating_sub(1);
            (self.packed, self.goes_on) = (Some((start, Vec::new())), true);
        }
        self.goes_on = self.goes_on && addr.is_address();
        if let Some((_, list)) = self.packed.as_mut().filter(|_| self.goes_on)
            && list.len() < MOST
        {
            list.push(addr);
        }
        if addr == BlockAddr::COMPRESS {
            if !starts {
                return Some("a mark of a cluster that is not at its start");
            }
            (self.inside, self.follows_mark) = (true, true);
            self.saved = self.saved.saturating_add(blocks.into());
        } else if starts {
            self.inside = false;
        } else if self.inside && addr.is_address() {
            self.saved = self.saved.saturating_sub(1);
        }
        is_empty.then_some(NO_DATA)
    }

    /// Checks a cluster without a mark, after its last pointer: if its saved blocks were given
    /// back, its data may show that it is packed.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn check_mark(
        &self,
        context: &Context,
        scratch: &mut Scratch,
        (ino, record): (Nid, &Inode),
    ) -> Result<()> {
        let (Some(start), list) = (self.unmarked.0, &self.unmarked.1) else { return Ok(()) };
        let is_whole = u32::try_from(list.len()).is_ok_and(|len| Some(len) == self.blocks);
        let is_inside = |addr: &BlockAddr| !addr.is_address() || context.layout.in_main(*addr);
        let second = list.get(1).copied().filter(|addr| addr.is_address());
        let Some(second) = second.filter(|_| is_whole && list.iter().all(is_inside)) else {
            return Ok(());
        };
        let block = context.with_block(scratch, second, <[u8]>::to_vec)?.unwrap_or_default();
        let device = &*context.volume.device;
        if compress::looks_packed(device, (ino, record), (start, list), &block)? {
            let place = Place::inode(ino.get()).at_file_block(start).in_field(LOST_MARK);
            context.add(
                Finding::new(&kinds::INODE_COMPRESSION, place)
                    .stored("a packed cluster has no mark"),
            );
        }
        Ok(())
    }

    /// Checks that clusters have checksums, if the inode says so: no reader reads them otherwise.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn check_flag(
        &self,
        context: &Context,
        scratch: &mut Scratch,
        (ino, record): (Nid, &Inode),
    ) -> Result<()> {
        let flag = record.extra.map_or(0, |extra| extra.compress_flag);
        let first = self.packed.as_ref().and_then(|(_, list)| list.first()).copied();
        let first = first.filter(|addr| context.layout.in_main(*addr));
        let Some(first) = first.filter(|_| compress::has_checksum(flag)) else { return Ok(()) };
        if context.with_block(scratch, first, compress::lacks_checksum)? == Some(true) {
            let place = Place::inode(ino.get()).in_field("i_compress_flag");
            let finding = Finding::new(&kinds::INODE_FIELD, place).stored(u64::from(flag));
            context.add(finding.computed("its clusters have no checksums"));
        }
        Ok(())
    }

    /// Checks the size of clusters whose saved blocks were given back, which no count tells: the
    /// first packed one must fit it.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn check_size(&self, context: &Context, (ino, record): (Nid, &Inode)) -> Result<()> {
        let (Some(extra), Some((start, blocks))) = (record.extra, &self.packed) else {
            return Ok(());
        };
        let is_inside = blocks.iter().all(|addr| context.layout.in_main(*addr));
        if !self.released || !is_inside {
            return Ok(());
        }
        let fits = |log: u8| {
            let size = 1_usize.strict_shl(log.into());
            let mut list = vec![BlockAddr::COMPRESS];
            list.extend(blocks);
            list.resize(size, BlockAddr::NULL);
            let device = &*context.volume.device;
            match compress::unpack_cluster(device, ino, record, *start, &list) {
                Ok(_) => Ok(true),
                Err(Error::Corrupt(_)) => Ok(false),
                Err(error) => Err(error),
            }
        };
        let stored = extra.log_cluster_size;
        if fits(stored)? {
            return Ok(());
        }
        for log in stored.saturating_add(1)..=MOST_LOG {
            if start.checked_rem(1 << log) == Some(0) && fits(log)? {
                let place = Place::inode(ino.get()).in_field("i_log_cluster_size");
                let finding = Finding::new(&kinds::INODE_FIELD, place).stored(u64::from(stored));
                context.add(finding.computed(u64::from(log)));
                break;
            }
        }
        Ok(())
    }

    /// The end of the file.
    pub(super) fn finish(&self, context: &Context, ino: Nid, record: &Inode) {
        let stored = record.extra.map_or(0, |extra| extra.compr_blocks);
        if self.blocks.is_some() && !self.released && stored != self.saved {
            let place = Place::inode(ino.get()).in_field("i_compr_blocks");
            let finding = Finding::new(&kinds::INODE_COMPRESSION, place);
            context.add(finding.stored(stored).computed(self.saved));
        }
    }
}
