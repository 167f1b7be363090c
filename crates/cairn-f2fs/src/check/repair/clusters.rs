//! The clusters of compressed files.

use std::collections::BTreeSet;

use cairn_check::{Finding, Value};

use super::super::clusters::LOST_MARK;
use super::edit::Edit;
use crate::compress;
use crate::error::Result;
use crate::format::Inode;
use crate::format::units::{BlockAddr, Nid};

impl Edit<'_> {
    /// Mends a finding about clusters. False if it stays.
    pub(super) fn mend_compression(
        &mut self,
        finding: &Finding,
        ino: Nid,
        number: Option<u64>,
    ) -> Result<bool> {
        if let Some(block) = finding.place.file_block {
            if finding.place.field == Some(LOST_MARK) {
                let Some(slot) = self.slot(ino, block)? else { return Ok(false) };
                self.set_pointer(slot, BlockAddr::COMPRESS)?;
                self.mended(finding);
                return Ok(true);
            }
            return self.clear_cluster(finding, ino, block);
        }
        let Some(number) = number else { return Ok(false) };
        let counted = match finding.stored {
            Some(Value::Number(counted)) => counted,
            _ => number,
        };
        if let Some(missing) = counted.checked_sub(number)
            && self.restore_marks(ino, missing)?
        {
            self.mended(finding);
            return Ok(true);
        }
        let done = self.change(ino, |record| {
            if let Some(extra) = record.extra.as_mut() {
                extra.compr_blocks = number;
            }
        })?;
        if done && counted > number {
            // What lies there is read as it is packed.
            let what = "clusters that are no longer marked as compressed, if the count was right";
            self.lost((finding.kind, finding.place.clone()), ino, what);
        } else if done {
            self.mended(finding);
        }
        Ok(done)
    }

    /// The end of a file whose last block this is. What is packed in a cluster ends behind its
    /// blocks.
    pub(super) fn end_behind(&self, ino: Nid, record: &Inode, last: u64) -> Result<u64> {
        let end = last.saturating_add(1);
        let Some(blocks) = record.cluster_blocks().map(u64::from) else { return Ok(end) };
        let start = last.saturating_sub(last.checked_rem(blocks).unwrap_or(0));
        let first = self.slot(ino, start)?.map(|slot| slot.addr);
        Ok(if first == Some(BlockAddr::COMPRESS) { start.saturating_add(blocks) } else { end })
    }

    /// Clears a mark in the wrong place, or a whole cluster without data.
    fn clear_cluster(&mut self, finding: &Finding, ino: Nid, block: u64) -> Result<bool> {
        let Some((record, _)) = self.inode(ino)? else { return Ok(false) };
        let blocks = u64::from(record.cluster_blocks().unwrap_or(1));
        let start = block.saturating_sub(block.checked_rem(blocks).unwrap_or(0));
        let first = self.slot(ino, start)?.filter(|slot| slot.addr == BlockAddr::COMPRESS);
        let cleared = match first {
            Some(_) if block == start.saturating_add(1) => start..start.saturating_add(blocks),
            _ => block..block.saturating_add(1),
        };
        let mut changed = false;
        for block in cleared {
            let Some(slot) = self.slot(ino, block)? else { continue };
            self.set_pointer(slot, BlockAddr::NULL)?;
            changed = true;
        }
        if changed {
            let what = format!("a compressed cluster, blocks {start} and further");
            self.lost((finding.kind, finding.place.clone()), ino, &what);
        }
        Ok(changed)
    }

    /// Sets the marks of clusters whose data shows that they are compressed, if they are those
    /// that the count of saved blocks misses.
    fn restore_marks(&mut self, ino: Nid, missing: u64) -> Result<bool> {
        let Some((record, _)) = self.inode(ino)? else { return Ok(false) };
        let Some(blocks) = record.cluster_blocks().map(u64::from) else { return Ok(false) };
        let starts: BTreeSet<u64> = self
            .data_blocks(ino)?
            .into_iter()
            .map(|(block, _)| block.saturating_sub(block.checked_rem(blocks).unwrap_or(0)))
            .collect();
        let (mut saved, mut unmarked) = (0_u64, Vec::new());
        for start in starts {
            let Some(slot) = self.slot(ino, start)? else { continue };
            if slot.addr != BlockAddr::COMPRESS
                && let Some(packed) = self.packed_blocks(ino, start, blocks)?
            {
                saved = saved.saturating_add(blocks.saturating_sub(packed));
                unmarked.push(slot);
            }
        }
        if missing == 0 || saved != missing {
            return Ok(false);
        }
        for slot in unmarked {
            self.set_pointer(slot, BlockAddr::COMPRESS)?;
        }
        Ok(true)
    }

    /// The blocks of the packed data of a cluster, if its header fits them.
    fn packed_blocks(&self, ino: Nid, start: u64, blocks: u64) -> Result<Option<u64>> {
        let (mut packed, mut ends, mut first) = (0_u64, false, None);
        for block in start.saturating_add(1)..start.saturating_add(blocks) {
            let addr = self.slot(ino, block)?.map_or(BlockAddr::NULL, |slot| slot.addr);
            if !addr.is_address() {
                ends = true;
                continue;
            }
            if ends || !self.layout.in_main(addr) {
                return Ok(None);
            }
            first = first.or(Some(addr));
            packed = packed.saturating_add(1);
        }
        let Some(first) = first else { return Ok(None) };
        let bytes = self.read(first.get().into())?;
        Ok(compress::packed_blocks(&bytes).filter(|needs| *needs == packed))
    }
}
