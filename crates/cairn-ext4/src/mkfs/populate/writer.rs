//! [`Writer`]: several threads write the units of a volume.

use std::sync::Arc;

use cairn_base::Pba;
use cairn_base::runtime::Runtime;
use cairn_base::runtime::parts::{self, Parts};
use cairn_base::units::stored;
use cairn_block::BlockDevice;
use cairn_block::sparse::SparseWriter;
use cairn_vfs::new_tree::Kind;

use super::directory::{Form, Writer as DirectoryWriter};
use super::error::{PopulateError, PopulateResult};
use super::places::Places;
use super::records::Records;
use super::regular::tree;
use super::stream::Stream;
use super::survey::Survey;
use super::units::{Unit, units};
use super::volume::Numbers;
use crate::format::layout::Layout;

/// What the threads share.
pub(super) struct Writer {
    pub(super) survey: Arc<Survey>,
    pub(super) places: Places,
    pub(super) stream: Stream,
    pub(super) numbers: Numbers,
    pub(super) layout: Layout,
    /// The inode table of each group.
    pub(super) tables: Vec<Pba>,
    /// The first records of the first table.
    pub(super) records: Vec<u8>,
}

struct Work {
    writer: Writer,
    units: Vec<Unit>,
    output: SparseWriter,
}

/// Writes all units with this many threads.
pub(super) fn write(
    writer: Writer,
    device: Arc<dyn BlockDevice>,
    threads: usize,
    runtime: &dyn Runtime,
) -> PopulateResult<Writer> {
    let last = writer.numbers.last();
    let units = units(&writer.survey, &writer.places, &writer.stream, &writer.layout, last);
    let output = SparseWriter::new(device, writer.survey.settings.block_size);
    let work = Work { writer, units, output };
    Ok(parts::run(work, "populate", threads, runtime)?.writer)
}

impl Parts for Work {
    type Error = PopulateError;

    fn count(&self) -> usize {
        self.units.len()
    }

    fn part(&self, number: usize) -> PopulateResult<()> {
        self.unit(self.units[number])
    }
}

impl Work {
    fn unit(&self, unit: Unit) -> PopulateResult<()> {
        let writer = &self.writer;
        let blocks = match unit {
            Unit::Records { blocks, .. }
            | Unit::Attributes { blocks, .. }
            | Unit::Value { blocks, .. } => blocks.into(),
            Unit::Nodes { blocks, .. } => blocks,
        };
        let mut buffer = self.output.buffer(blocks);
        let runs: Vec<(Pba, u64)> = match unit {
            Unit::Records { group, first, .. } => {
                writer.records(group, first, &mut buffer)?;
                let table = writer.tables[group as usize];
                vec![(Pba(table.get() + u64::from(first)), blocks)]
            }
            Unit::Attributes { first, .. } => {
                writer.attributes(first, &mut buffer)?;
                writer.stream.runs(first.into(), blocks).collect()
            }
            Unit::Value { number, .. } => {
                writer.value(number, &mut buffer);
                writer.stream.runs(writer.places.value(number), blocks).collect()
            }
            Unit::Nodes { at, id, skip, metadata, .. } => {
                writer.nodes(id, skip, metadata, &mut buffer)?;
                writer.stream.runs(at, blocks).collect()
            }
        };
        let runs = runs.into_iter().map(|(pba, blocks)| (pba.get(), blocks));
        Ok(self.output.write(buffer, runs)?)
    }
}

impl Writer {
    fn of_records(&self) -> Records<'_> {
        let Self { survey, places, stream, layout, .. } = self;
        let first_value = self.numbers.first_value();
        Records { survey, places, stream, layout, first_value }
    }

    fn records(&self, group: u32, first: u32, out: &mut [u8]) -> PopulateResult<()> {
        let size = self.layout.inode_size as usize;
        let start = first * (self.layout.block_size / self.layout.inode_size);
        out.fill(0);
        if group == 0 && first == 0 {
            out[..self.records.len()].copy_from_slice(&self.records);
        }
        let records = self.of_records();
        for (index, out) in (start..).zip(out.chunks_mut(size)) {
            let ino = self.layout.ino(group, index);
            if let Some(id) = self.numbers.id(ino) {
                records.inode(id)?.encode(ino, &self.layout, out);
            } else if let Some(value) = self.numbers.value(ino) {
                records.value(value).encode(ino, &self.layout, out);
            }
        }
        Ok(())
    }

    fn attributes(&self, first: u32, out: &mut [u8]) -> PopulateResult<()> {
        let survey = &*self.survey;
        for (number, out) in (first..).zip(out.chunks_mut(survey.settings.block_size)) {
            let pba = self.stream.run(number.into(), 1).0;
            let values = (&survey.values, self.numbers.first_value());
            survey.shared.encode(number, pba, &*survey.source, &survey.settings, values, out)?;
        }
        Ok(())
    }

    fn value(&self, number: u32, out: &mut [u8]) {
        let values = &self.survey.values;
        let bytes = values.bytes(&*self.survey.source, &values.list[number as usize]);
        let (value, rest) = out.split_at_mut(bytes.len());
        value.copy_from_slice(bytes);
        rest.fill(0);
    }

    fn nodes(&self, id: u32, skip: u64, metadata: bool, out: &mut [u8]) -> PopulateResult<()> {
        let block_size = self.survey.settings.block_size;
        let (mut id, mut skip, mut rest) = (id, skip, out);
        while !rest.is_empty() {
            if self.survey.nodes[id as usize].blocks == 0 || self.survey.is_metadata(id) != metadata
            {
                id += 1;
                continue;
            }
            let span = self.places.span(&self.survey, &self.stream, id) - skip;
            let bytes = (span * block_size as u64).min(rest.len() as u64);
            let (now, later) = rest.split_at_mut(bytes as usize);
            match self.survey.source.node(id).kind {
                Kind::Directory { .. } => self.directory(id, now)?,
                Kind::Symlink(target) => {
                    now.fill(0);
                    now[..target.len()].copy_from_slice(target);
                }
                _ => self.file(id, skip, now)?,
            }
            (rest, id, skip) = (later, id + 1, 0);
        }
        Ok(())
    }

    fn directory(&self, id: u32, out: &mut [u8]) -> PopulateResult<()> {
        let survey = &*self.survey;
        let names = survey.names(id).expect("a directory");
        let number = |id: u32| stored(self.numbers.ino(id).get());
        let ino = self.numbers.ino(id);
        let format = survey.settings.directory(self.layout.checksum.for_inode(ino, 0));
        let writer = DirectoryWriter {
            names,
            format,
            hash_version: survey.settings.hash.default_version,
            dots: (number(id), number(survey.nodes[id as usize].parent)),
            ino: &number,
        };
        writer.encode(&Form::new(&names, &survey.settings)?, out);
        Ok(())
    }

    /// Data blocks of a file from the `skip`th on, then those of its extent tree.
    fn file(&self, id: u32, skip: u64, out: &mut [u8]) -> PopulateResult<()> {
        let block_size = self.survey.settings.block_size;
        let blocks = self.survey.own_blocks(id);
        let data = blocks.saturating_sub(skip) * block_size as u64;
        let (data, trees) = out.split_at_mut(data.min(out.len() as u64) as usize);
        if !data.is_empty() {
            self.survey.data(id, skip, data)?;
        }
        if trees.is_empty() {
            return Ok(());
        }
        let seed = self.layout.checksum.for_inode(self.numbers.ino(id), 0);
        let all = self.places.extents(&self.survey, &self.stream, id);
        let behind = self.places.tree_at(&self.survey, id);
        let (_, below) = tree(all, behind, &self.stream, self.layout.block_size);
        let below = below.iter().skip(skip.saturating_sub(blocks) as usize);
        for (node, block) in below.zip(trees.chunks_mut(block_size)) {
            block.fill(0);
            node.encode_block(block, seed);
        }
        Ok(())
    }
}
