//! [`write`]: several threads write the units of a volume.

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::runtime::parts::{self, Parts};
use cairn_block::BlockDevice;
use cairn_block::sparse::SparseWriter;
use cairn_vfs::new_tree::{Kind, read_blocks};

use super::error::{PopulateError, PopulateResult};
use super::places::{Start, span};
use super::plan::Plan;
use super::units::{Unit, units};
use crate::format::layout::Side;
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE};
use crate::format::{Layout, Log, Nid, nat};

struct Work {
    plan: Plan,
    units: Vec<Unit>,
    output: SparseWriter,
}

/// Writes all units with this many threads.
pub(super) fn write(
    plan: Plan,
    device: Arc<dyn BlockDevice>,
    threads: usize,
    runtime: &dyn Runtime,
) -> PopulateResult<Plan> {
    let units = units(&plan.survey, &plan.places);
    let output = SparseWriter::new(device, BLOCK_SIZE);
    let work = Work { plan, units, output };
    Ok(parts::run(work, "populate", threads, runtime)?.plan)
}

impl Parts for Work {
    type Error = PopulateError;

    fn count(&self) -> usize {
        self.units.len()
    }

    fn part(&self, number: usize) -> PopulateResult<()> {
        let plan = &self.plan;
        let unit = self.units[number];
        let blocks = match unit {
            Unit::Blocks { blocks, .. } => blocks,
            Unit::Summaries { count, .. } => count,
            Unit::Nat { count, .. } => count.into(),
        };
        let mut buffer = self.output.buffer(blocks);
        let mut runs = vec![(0, blocks)];
        match unit {
            Unit::Blocks { log, at, start, .. } => {
                plan.blocks(log, start, &mut buffer)?;
                runs[0].0 = plan.volume.address(log, at).get().into();
            }
            Unit::Summaries { log, first, count } => {
                plan.summaries(log, first, count, &mut buffer);
                let segment = log.of(&plan.volume.logs).get() + first as u32;
                runs[0].0 = plan.volume.layout.summary_address(segment.into()).get();
            }
            Unit::Nat { first, count } => {
                plan.nat(first, &mut buffer);
                let layout = &plan.volume.layout;
                runs = (first..first + count)
                    .map(|block| (layout.nat_address(block, Side::First).get(), 1))
                    .collect();
            }
        }
        Ok(self.output.write(buffer, runs)?)
    }
}

impl Plan {
    /// Blocks of a log.
    fn blocks(&self, log: Log, start: Start, out: &mut [u8]) -> PopulateResult<()> {
        let (mut id, mut skip, mut rest) = (start.id, start.skip, out);
        while !rest.is_empty() {
            let span = span(&self.survey.nodes[id as usize], log).saturating_sub(skip);
            let bytes = (span as usize).saturating_mul(BLOCK_SIZE).min(rest.len());
            let (now, later) = rest.split_at_mut(bytes);
            match log {
                _ if now.is_empty() => {}
                Log::ColdNode => self.indirect_nodes(id, skip, now),
                log if log.is_node() => self.own_nodes(id, skip, now)?,
                _ => self.contents(id, skip, now)?,
            }
            (rest, id, skip) = (later, id + 1, 0);
        }
        Ok(())
    }

    /// Blocks of contents; of a directory, all.
    fn contents(&self, id: u32, skip: u32, out: &mut [u8]) -> PopulateResult<()> {
        match self.survey.source.node(id).kind {
            Kind::Directory { .. } => self.directory(id, out),
            Kind::Symlink(target) => {
                out.fill(0);
                out[..target.len()].copy_from_slice(target);
            }
            _ => read_blocks(&*self.survey.source, id, BLOCK_BYTES, skip.into(), out)?,
        }
        Ok(())
    }

    /// Blocks of the NAT, from the `first`th on.
    fn nat(&self, first: u32, out: &mut [u8]) {
        out.fill(0);
        for (number, block) in (first..).zip(out.chunks_mut(BLOCK_SIZE)) {
            let nids = (Layout::first_nid(number).get()..).map(Nid);
            for (index, nid) in (0..nat::ENTRIES_PER_BLOCK).zip(nids) {
                if let Some(entry) = self.nat_entry(nid) {
                    nat::set_entry(block, index, entry);
                }
            }
        }
    }
}
