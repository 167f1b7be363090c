//! The work: overwrites of one file in some pattern, or many small files that are created and
//! deleted.
//!
//! Every block contains its file, its number and its version ([`Tag`]).

use std::collections::VecDeque;

use cairn_base::Ino;
use cairn_block::tagged::{BLOCK, Tag};
use cairn_f2fs::F2fs;
use cairn_vfs::FileSystem;
use cairn_vfs::types::{Caller, IoFlags, NewInode, OpenMode};

use super::zipf::Zipf;
use crate::error::{Error, Result};
use crate::random::Rng;

/// Blocks that are written or read in one call.
const PIECE: u64 = 256;
/// Most blocks written back at once, as in Linux.
const FLUSH: u64 = 1024;
/// Largest number of blocks of a small file.
const SMALL: u64 = 16;
/// Small files in a directory.
const PER_DIRECTORY: u64 = 512;

/// Which blocks are overwritten.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pattern {
    Uniform,
    Zipf(f64),
    Sequential,
}

/// The work. `times` is the number of blocks written as a multiple of the files' blocks; `dirty` is
/// the share of these that may be dirty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Load {
    Overwrite { pattern: Pattern, times: f64, dirty: f64, fsync_every: Option<u64> },
    SmallFiles { times: f64, dirty: f64 },
}

/// What the work did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    /// Blocks that the work wrote.
    pub(super) written: u64,
    /// Sum of the number of dirty blocks after each of these writes.
    dirty_sum: u64,
    files: u64,
}

impl Done {
    /// Mean share of the files' blocks that was dirty, in percent.
    pub(super) fn dirty_percent(&self) -> f64 {
        100.0 * self.dirty_sum as f64 / self.written.max(1) as f64 / self.files.max(1) as f64
    }
}

/// A volume with its files, ready to be overwritten.
pub(super) enum Prepared {
    File(File),
    Small(SmallFiles),
}

impl Prepared {
    /// Creates the files.
    pub(super) fn new(volume: &F2fs, load: Load, blocks: u64) -> Result<Self> {
        let prepared = match load {
            Load::Overwrite { .. } => Self::File(File::lay_out(volume, blocks)?),
            Load::SmallFiles { .. } => Self::Small(SmallFiles::lay_out(volume, blocks)?),
        };
        volume.sync()?;
        Ok(prepared)
    }

    /// Does the work.
    pub(super) fn run(&mut self, volume: &F2fs, load: Load) -> Result<Done> {
        match (self, load) {
            (Self::File(file), Load::Overwrite { pattern, times, dirty, fsync_every }) => {
                file.overwrite(volume, pattern, times, dirty, fsync_every)
            }
            (Self::Small(files), Load::SmallFiles { times, dirty }) => {
                files.churn(volume, times, dirty)
            }
            _ => unreachable!("the files were laid out for this work"),
        }
    }

    /// Reads all files and compares their blocks.
    pub(super) fn verify(&self, volume: &F2fs) -> Result<()> {
        match self {
            Self::File(file) => file.verify(volume),
            Self::Small(files) => files.verify(volume),
        }
    }
}

/// An inode that is open for writing.
struct Open {
    ino: Ino,
    handle: u64,
}

impl Open {
    fn create(volume: &F2fs, parent: Ino, name: &str) -> Result<Self> {
        let made =
            volume.create(parent, name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT)?;
        let handle = volume.open(made.ino, OpenMode { write: true, direct: false })?;
        Ok(Self { ino: made.ino, handle })
    }

    fn close(self, volume: &F2fs) {
        volume.release(self.ino, self.handle);
        volume.forget(self.ino, 1);
    }
}

fn write(volume: &F2fs, ino: Ino, block: u64, data: &[u8], flags: IoFlags) -> Result<()> {
    let written = volume.write(ino, block * BLOCK as u64, data, flags)?;
    if written == data.len() { Ok(()) } else { Err(cairn_vfs::Error::NoSpace.into()) }
}

/// The bytes of blocks `start..start + versions.len()` of a file.
fn filled(file: u32, start: u64, versions: &[u32]) -> Vec<u8> {
    let mut data = vec![0; versions.len() * BLOCK];
    for ((index, version), block) in
        (start as u32..).zip(versions).zip(data.chunks_exact_mut(BLOCK))
    {
        Tag { file, index, version: *version }.fill(block);
    }
    data
}

fn check(volume: &F2fs, ino: Ino, file: u32, versions: &[u32]) -> Result<()> {
    let mut buf = vec![0; PIECE as usize * BLOCK];
    for (piece, versions) in (0..).zip(versions.chunks(PIECE as usize)) {
        let (start, buf) = (piece * PIECE, &mut buf[..versions.len() * BLOCK]);
        let read = volume.read(ino, start * BLOCK as u64, buf, IoFlags::empty())?;
        for ((index, version), block) in
            (start as u32..).zip(versions).zip(buf[..read].chunks(BLOCK))
        {
            let expected = Tag { file, index, version: *version };
            if Tag::of(block) != Some(expected) {
                let text = format!(
                    "block {index} of file {file} is {:?}, version {version} was written",
                    Tag::of(block)
                );
                return Err(Error::Program(text));
            }
        }
        if read < buf.len() {
            return Err(Error::Program(format!("file {file} ends at block {start}")));
        }
    }
    Ok(())
}

/// Which blocks of the file are dirty in memory.
struct Dirty {
    bits: Vec<u64>,
    count: u64,
    /// Block at which the next write-back begins.
    cursor: u64,
    limit: u64,
}

impl Dirty {
    fn new(blocks: u64, part: f64) -> Self {
        let limit = (blocks as f64 * part) as u64;
        Self { bits: vec![0; blocks.div_ceil(64) as usize], count: 0, cursor: 0, limit }
    }

    fn set(&mut self, block: u64) {
        let (word, bit) = (&mut self.bits[(block / 64) as usize], 1 << (block % 64));
        self.count += u64::from(*word & bit == 0);
        *word |= bit;
    }

    /// Takes the next dirty blocks in the order of the file, cyclically: a range with at most
    /// `most` of them.
    fn take(&mut self, most: u64) -> std::ops::Range<u64> {
        let words = self.bits.len() as u64;
        let (start, mut word, mut taken) = (self.cursor, self.cursor, 0);
        while taken < most && word < words {
            taken += u64::from(std::mem::take(&mut self.bits[word as usize]).count_ones());
            word += 1;
        }
        self.count -= taken;
        self.cursor = if word == words { 0 } else { word };
        start * 64..word * 64
    }

    fn clear(&mut self) {
        self.bits.fill(0);
        self.count = 0;
    }
}

/// One large file.
pub(super) struct File {
    open: Open,
    versions: Vec<u32>,
}

const LARGE: u32 = 1;

impl File {
    fn lay_out(volume: &F2fs, blocks: u64) -> Result<Self> {
        let open = Open::create(volume, volume.root(), "file")?;
        let versions = vec![0; blocks as usize];
        for (piece, versions) in (0..).zip(versions.chunks(PIECE as usize)) {
            let start = piece * PIECE;
            write(volume, open.ino, start, &filled(LARGE, start, versions), IoFlags::empty())?;
            if piece % 16 == 15 {
                volume.write_back(open.ino, 0..(start + PIECE) * BLOCK as u64)?;
            }
        }
        Ok(Self { open, versions })
    }

    fn overwrite(
        &mut self,
        volume: &F2fs,
        pattern: Pattern,
        times: f64,
        dirty: f64,
        fsync_every: Option<u64>,
    ) -> Result<Done> {
        let blocks = self.versions.len() as u64;
        let mut rng = Rng::new(0xca19);
        let zipf = match pattern {
            Pattern::Zipf(s) => Some(Zipf::new(blocks, s, &mut rng)),
            _ => None,
        };
        let flags = if dirty == 0.0 { IoFlags::DIRECT } else { IoFlags::empty() };
        let mut dirty = Dirty::new(blocks, dirty);
        let mut done = Done { files: blocks, ..Done::default() };
        let mut block = vec![0; BLOCK];
        let total = (blocks as f64 * times) as u64;
        while done.written < total {
            let index = match (&zipf, pattern) {
                (Some(zipf), _) => zipf.next(&mut rng),
                (None, Pattern::Sequential) => done.written % blocks,
                (None, _) => rng.below(blocks),
            };
            let version = &mut self.versions[index as usize];
            *version += 1;
            Tag { file: LARGE, index: index as u32, version: *version }.fill(&mut block);
            write(volume, self.open.ino, index, &block, flags)?;
            done.written += 1;
            if flags.is_empty() {
                dirty.set(index);
                if dirty.count > dirty.limit {
                    let range = dirty.take((dirty.limit / 16).clamp(1, FLUSH));
                    volume.write_back(
                        self.open.ino,
                        range.start * BLOCK as u64..range.end * BLOCK as u64,
                    )?;
                }
            }
            if fsync_every.is_some_and(|every| done.written.is_multiple_of(every)) {
                volume.fsync(self.open.ino, self.open.handle, false)?;
                dirty.clear();
            }
            done.dirty_sum += dirty.count;
        }
        Ok(done)
    }

    fn verify(&self, volume: &F2fs) -> Result<()> {
        check(volume, self.open.ino, LARGE, &self.versions)
    }
}

/// A small file.
struct Small {
    file: u32,
    ino: Ino,
    blocks: u64,
    directory: usize,
}

/// Many small files.
pub(super) struct SmallFiles {
    directories: Vec<Ino>,
    files: Vec<Small>,
    next: u32,
    blocks: u64,
    rng: Rng,
    /// Files that are not written back, with their blocks.
    dirty: VecDeque<(Ino, u64)>,
    dirty_blocks: u64,
}

impl SmallFiles {
    fn lay_out(volume: &F2fs, blocks: u64) -> Result<Self> {
        // A file of the mean size needs an inode, and some room for its name.
        let count = blocks / (SMALL / 2 + 2);
        let mut directories = Vec::new();
        for number in 0..count.div_ceil(PER_DIRECTORY).max(1) {
            let name = format!("d{number}");
            directories.push(
                volume
                    .create(
                        volume.root(),
                        name.as_bytes(),
                        NewInode::Directory,
                        0o755,
                        &Caller::ROOT,
                    )?
                    .ino,
            );
        }
        let (files, dirty) = (Vec::new(), VecDeque::new());
        let mut small = Self {
            directories,
            files,
            next: 0,
            blocks: 0,
            rng: Rng::new(0x5ca1),
            dirty,
            dirty_blocks: 0,
        };
        for _ in 0..count {
            small.add(volume)?;
            small.write_back(volume, FLUSH)?;
        }
        small.write_back(volume, 0)?;
        Ok(small)
    }

    fn add(&mut self, volume: &F2fs) -> Result<u64> {
        let (file, blocks) = (self.next, 1 + self.rng.below(SMALL));
        self.next += 1;
        let directory = self.rng.below(self.directories.len() as u64) as usize;
        let open = Open::create(volume, self.directories[directory], &file.to_string())?;
        let ino = open.ino;
        let written =
            write(volume, ino, 0, &filled(file, 0, &vec![0; blocks as usize]), IoFlags::empty());
        open.close(volume);
        written?;
        self.files.push(Small { file, ino, blocks, directory });
        self.blocks += blocks;
        self.dirty.push_back((ino, blocks));
        self.dirty_blocks += blocks;
        Ok(blocks)
    }

    fn remove(&mut self, volume: &F2fs) -> Result<()> {
        let index = self.rng.below(self.files.len() as u64) as usize;
        let small = self.files.swap_remove(index);
        volume.unlink(self.directories[small.directory], small.file.to_string().as_bytes())?;
        if let Some(at) = self.dirty.iter().position(|(ino, _)| *ino == small.ino) {
            self.dirty.remove(at);
            self.dirty_blocks -= small.blocks;
        }
        self.blocks -= small.blocks;
        Ok(())
    }

    /// Writes the oldest files back until at most `limit` blocks are dirty.
    fn write_back(&mut self, volume: &F2fs, limit: u64) -> Result<()> {
        while self.dirty_blocks > limit {
            let Some((ino, blocks)) = self.dirty.pop_front() else { break };
            volume.write_back(ino, 0..blocks * BLOCK as u64)?;
            self.dirty_blocks -= blocks;
        }
        Ok(())
    }

    fn churn(&mut self, volume: &F2fs, times: f64, dirty: f64) -> Result<Done> {
        let full = self.blocks;
        let limit = (full as f64 * dirty) as u64;
        let mut done = Done { files: full, ..Done::default() };
        while done.written < (full as f64 * times) as u64 {
            while self.blocks + SMALL > full {
                self.remove(volume)?;
            }
            let blocks = self.add(volume)?;
            done.written += blocks;
            self.write_back(volume, limit)?;
            done.dirty_sum += blocks * self.dirty_blocks;
        }
        Ok(done)
    }

    fn verify(&self, volume: &F2fs) -> Result<()> {
        self.files.iter().try_for_each(|small| {
            volume.lookup(self.directories[small.directory], small.file.to_string().as_bytes())?;
            let checked = check(volume, small.ino, small.file, &vec![0; small.blocks as usize]);
            volume.forget(small.ino, 1);
            checked
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirty_blocks_are_taken_in_the_order_of_the_file() {
        let mut dirty = Dirty::new(1000, 0.01);
        assert_eq!(dirty.limit, 10);
        [5, 5, 70, 71, 500, 999].into_iter().for_each(|block| dirty.set(block));
        assert_eq!(dirty.count, 5);
        assert_eq!((dirty.take(2), dirty.count), (0..128, 2));
        dirty.set(6);
        assert_eq!((dirty.take(1), dirty.take(5), dirty.take(9)), (128..512, 512..1024, 0..1024));
        assert_eq!(dirty.count, 0);
    }
}
