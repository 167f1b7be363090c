//! Writing what has changed in memory, in the order that a power cut needs (see [`super`]).

use std::sync::atomic::Ordering;

use bytes::Bytes;
use cairn_base::sabotage::Safeguard;
use cairn_block::Request;

use super::error::Result;
use super::header_io;
use super::image::{Image, Writer};
use super::refcounts::TableChange;

fn writes(changes: Vec<(u64, Bytes)>) -> Vec<Request> {
    let write = |(offset, bytes)| Request::Write { offset, bufs: vec![bytes] };
    changes.into_iter().map(write).collect()
}

impl Image {
    /// Everything that was written is on the medium afterwards.
    pub(super) fn flush(&self) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        let mut writer = self.writer()?;
        self.flush_as(&mut writer)
    }

    /// The same for the thread that is the writer.
    pub(super) fn flush_as(&self, writer: &mut Writer) -> Result<()> {
        self.write_back(writer).map_err(|error| {
            let error = cairn_block::Error::from(error);
            self.failed.get_or_init(|| error).clone().into()
        })
    }

    fn write_back(&self, writer: &mut Writer) -> Result<()> {
        if !writer.refcounts.has_changed() && !self.tables.lock().has_changed() {
            return Ok(self.host.flush()?);
        }
        // What counts, and tables that nothing leads to.
        let mut changes = writer.refcounts.block_changes();
        let table = writer.refcounts.table_change();
        changes.extend(self.tables.lock().new_tables());
        if let Some(TableChange::Moved { offset, bytes, .. }) = &table {
            changes.push((*offset, bytes.clone()));
        }
        self.host.submit(writes(changes))?;
        self.barrier(Safeguard::Qcow2Counts)?;
        writer.refcounts.blocks_written();
        self.tables.lock().new_tables_written();
        // What leads to refcounts.
        match table {
            None => {}
            Some(TableChange::Entries(offset, bytes)) => {
                self.host.write(offset, bytes)?;
                self.barrier(Safeguard::Qcow2Table)?;
            }
            Some(TableChange::Moved { offset, clusters, .. }) => {
                header_io::change(&self.host, |header| {
                    header.refcount_table_offset = offset.into();
                    header.refcount_table_clusters = clusters.into();
                })?;
                self.barrier(Safeguard::Qcow2Table)?;
            }
        }
        let left = writer.refcounts.table_written();
        // What leads to data.
        let changes = self.tables.lock().changes();
        if !changes.is_empty() {
            self.host.submit(writes(changes))?;
            self.barrier(Safeguard::Qcow2Map)?;
            self.tables.lock().written();
        }
        self.pending.store(false, Ordering::Release);
        self.release(writer, left)
    }

    fn barrier(&self, safeguard: Safeguard) -> Result<()> {
        if safeguard.is_off() { Ok(()) } else { Ok(self.host.flush()?) }
    }

    /// Gives back what is noted as freed, when the header does not lead to it any more.
    pub(super) fn release_left(&self, writer: &mut Writer) -> Result<()> {
        self.release(writer, Vec::new())?;
        self.flush_as(writer)
    }

    /// Gives clusters back that nothing on the medium leads to.
    fn release(&self, writer: &mut Writer, mut freed: Vec<u64>) -> Result<()> {
        freed.append(&mut writer.freed);
        if freed.is_empty() {
            return Ok(());
        }
        // Whoever learned of such a cluster before the map changed has finished its transfer then.
        drop(self.clusters.write());
        self.decoded.lock().clear();
        freed.sort_unstable();
        let mut unused = Vec::new();
        for cluster in freed {
            if writer.refcounts.release(cluster)? == 0 {
                unused.push(cluster);
            }
        }
        // The next flush makes it durable. Until then clusters are leaked, at worst.
        self.host.submit(writes(writer.refcounts.block_changes()))?;
        writer.refcounts.blocks_written();
        if self.host.device().geometry().discard {
            // The host may keep the bytes.
            let _ = self.host.submit(self.discards(&unused));
        }
        Ok(())
    }

    /// Requests for runs of clusters that the file has.
    fn discards(&self, clusters: &[u64]) -> Vec<Request> {
        let cluster = self.cluster();
        let end = self.host.len() / cluster;
        let runs = clusters.chunk_by(|one, next| one + 1 == *next);
        let run = |run: &[u64]| {
            let (first, last) = (*run.first()?, (*run.last()? + 1).min(end));
            let len = last.checked_sub(first)? * cluster;
            (len > 0).then_some(Request::Discard { offset: first * cluster, len })
        };
        runs.filter_map(run).collect()
    }
}
