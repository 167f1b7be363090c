//! Random operations on one file, compared with a vector of its bytes.
//!
//! This is fsx in process: the filesystem is a [`Subject`].

use std::collections::VecDeque;
use std::sync::Arc;

use cairn_base::Ino;
use cairn_block::memory::MemoryDevice;
use cairn_vfs::{AllocateMode, Caller, FileSystem, IoFlags, NewInode, SetAttributes};

use crate::oracle::Subject;
use crate::transfer;

/// Operations between two comparisons of the whole file.
const LOOK: u32 = 1000;

/// The file.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Largest size in bytes.
    pub max: u64,
    /// Bytes a block.
    pub block: u64,
}

/// Applies `steps` operations chosen by `seed`, remounting and judging now and then.
///
/// # Panics
/// The file differs from the vector, or the volume is not clean.
pub fn run(subject: &dyn Subject, shape: Shape, seed: u64, steps: u32) {
    let mut fsx = Fsx::new(subject, shape, seed);
    for step in 0..steps {
        fsx.step();
        if step.is_multiple_of(LOOK) {
            fsx.verify_all();
        }
    }
    fsx.remount();
    fsx.check(fsx.fs.unmount());
    subject.judge(&fsx.device);
}

struct Fsx<'a> {
    subject: &'a dyn Subject,
    shape: Shape,
    seed: u64,
    device: Arc<MemoryDevice>,
    fs: Arc<dyn FileSystem>,
    ino: Ino,
    expected: Vec<u8>,
    rng: fastrand::Rng,
    /// The last operations, for the failure message.
    log: VecDeque<String>,
}

impl<'a> Fsx<'a> {
    fn new(subject: &'a dyn Subject, shape: Shape, seed: u64) -> Self {
        let device = subject.make();
        let fs = subject.open(&device);
        let made = fs
            .create(fs.root(), b"f", NewInode::Regular, 0o644, &Caller::ROOT)
            .expect("a new volume takes a file");
        let rng = fastrand::Rng::with_seed(seed);
        Self {
            subject,
            shape,
            seed,
            device,
            fs,
            ino: made.ino,
            expected: Vec::new(),
            rng,
            log: VecDeque::new(),
        }
    }

    fn note(&mut self, what: String) {
        if self.log.len() == 24 {
            self.log.pop_front();
        }
        self.log.push_back(what);
    }

    fn fail(&self, why: &str) -> ! {
        let log: Vec<_> = self.log.iter().map(String::as_str).collect();
        panic!(
            "{}, seed {}: {why}; last operations:\n{}",
            self.subject.name(),
            self.seed,
            log.join("\n")
        );
    }

    fn check<T>(&self, result: cairn_vfs::Result<T>) -> T {
        result.unwrap_or_else(|error| self.fail(&error.to_string()))
    }

    fn size(&self) -> u64 {
        self.expected.len() as u64
    }

    fn length(&mut self) -> u64 {
        if self.rng.u8(0..8) == 0 { self.rng.u64(1..65_536) } else { self.rng.u64(1..9000) }
    }

    /// Offset and length with the end at most `limit`; now and then aligned.
    fn range(&mut self, limit: u64) -> (u64, u64) {
        let mut offset = self.rng.u64(0..limit.max(1));
        let mut len = self.length().min(limit.saturating_sub(offset)).max(1);
        if self.rng.u8(0..4) == 0 {
            offset -= offset % self.shape.block;
            len = len
                .next_multiple_of(self.shape.block)
                .min(self.shape.max.saturating_sub(offset))
                .max(1);
        }
        (offset, len)
    }

    fn grow(&mut self, size: u64) {
        if size > self.size() {
            self.expected.resize(usize::try_from(size).unwrap(), 0);
        }
    }

    fn part(&mut self, offset: u64, len: u64) -> &mut [u8] {
        let end = (offset + len).min(self.size());
        let start = offset.min(end);
        &mut self.expected[usize::try_from(start).unwrap()..usize::try_from(end).unwrap()]
    }

    fn read(&mut self, flags: IoFlags) {
        let limit = self.size() + 10_000;
        let (offset, len) = self.range(limit);
        self.note(format!("read {offset}+{len} {flags:?}"));
        self.verify(offset, len, flags);
    }

    fn verify(&mut self, offset: u64, len: u64, flags: IoFlags) {
        let mut buf = vec![0xee; usize::try_from(len).unwrap()];
        let expected = self.part(offset, len).to_vec();
        if self.rng.bool() {
            let mut lent = Vec::new();
            let mut take = |pieces: &[&[u8]]| lent = pieces.concat();
            if self.check(self.fs.read_shared(self.ino, offset, buf.len(), flags, &mut take))
                && lent != expected
            {
                self.fail(&format!("what was lent of {offset}+{len} is not what is there"));
            }
        }
        let got = self.check(self.fs.read(self.ino, offset, &mut buf, flags));
        if got != expected.len() {
            self.fail(&format!(
                "read {offset}+{len} gave {got} bytes, not {}; size {}",
                expected.len(),
                self.size()
            ));
        }
        if let Some(at) = (0..got).find(|at| buf[*at] != expected[*at]) {
            let (found, want) = (buf[at], expected[at]);
            self.fail(&format!(
                "read {offset}+{len}: byte {} is {found:#x}, not {want:#x}",
                offset + at as u64
            ));
        }
    }

    fn write(&mut self, flags: IoFlags) {
        let (mut offset, len) = self.range(self.shape.max);
        if flags.contains(IoFlags::APPEND) {
            offset = self.size();
            if offset + len > self.shape.max {
                return;
            }
        }
        let mut data = vec![0; usize::try_from(len).unwrap()];
        self.rng.fill(&mut data);
        self.note(format!("write {offset}+{len} {flags:?}, size {}", self.size()));
        let written = self.check(transfer::write(&*self.fs, self.ino, offset, &data, flags));
        if written != data.len() {
            self.fail("short write");
        }
        self.grow(offset + len);
        self.part(offset, len).copy_from_slice(&data);
    }

    fn truncate(&mut self) {
        let size = match self.rng.u8(0..8) {
            0 => self.size(),
            1..=3 => self.rng.u64(0..=self.size()),
            _ => self.rng.u64(0..=self.shape.max),
        };
        self.note(format!("truncate {} to {size}", self.size()));
        self.check(
            self.fs
                .setattr(self.ino, &SetAttributes { size: Some(size), ..SetAttributes::default() }),
        );
        self.expected.resize(usize::try_from(size).unwrap(), 0);
    }

    fn allocate(&mut self, mode: AllocateMode) {
        let (offset, len) = self.range(self.shape.max);
        self.note(format!("{mode:?} {offset}+{len}, size {}", self.size()));
        self.check(self.fs.allocate(self.ino, mode, offset, len));
        if matches!(mode, AllocateMode::PunchHole | AllocateMode::ZeroRange { .. }) {
            self.part(offset, len).fill(0);
        }
        if matches!(mode, AllocateMode::Extend | AllocateMode::ZeroRange { keep_size: false }) {
            self.grow(offset + len);
        }
    }

    fn shift(&mut self, mode: AllocateMode) {
        let block = self.shape.block;
        let blocks = self.size() / block;
        if blocks < 3 {
            return;
        }
        let offset = self.rng.u64(0..blocks) * block;
        let len = self.rng.u64(1..=8) * block;
        let insert = mode == AllocateMode::InsertRange;
        if (insert && self.size() + len > self.shape.max)
            || (!insert && offset + len >= self.size())
        {
            return;
        }
        self.note(format!("{mode:?} {offset}+{len}, size {}", self.size()));
        self.check(self.fs.allocate(self.ino, mode, offset, len));
        let (from, len) = (usize::try_from(offset).unwrap(), usize::try_from(len).unwrap());
        if insert {
            self.expected.splice(from..from, std::iter::repeat_n(0, len));
        } else {
            self.expected.drain(from..from + len);
        }
    }

    fn copy(&mut self) {
        if self.size() < 2 {
            return;
        }
        let (from, len) = self.range(self.size());
        let len = len.min(self.size() - from);
        let to = self.rng.u64(0..self.shape.max - len);
        if from < to + len && to < from + len {
            return;
        }
        self.note(format!("copy {from}+{len} to {to}, size {}", self.size()));
        let copied = self.check(self.fs.copy_range(self.ino, from, self.ino, to, len));
        if copied != len {
            self.fail(&format!("{copied} bytes copied"));
        }
        let data = self.part(from, len).to_vec();
        self.grow(to + len);
        self.part(to, len).copy_from_slice(&data);
    }

    fn remount(&mut self) {
        self.note("remount".to_owned());
        self.check(self.fs.unmount());
        self.subject.judge(&self.device);
        self.fs = self.subject.open(&self.device);
        let found = self.check(self.fs.lookup(self.fs.root(), b"f"));
        if found.size != self.size() {
            self.fail(&format!("the size is {}, not {}", found.size, self.size()));
        }
        self.verify_all();
    }

    fn verify_all(&mut self) {
        self.verify(0, self.size() + 1, IoFlags::empty());
    }

    fn step(&mut self) {
        match self.rng.u32(0..1000) {
            0..270 => self.read(IoFlags::empty()),
            270..300 => self.read(IoFlags::DONTCACHE),
            300..500 => self.write(IoFlags::empty()),
            500..550 => self.write(IoFlags::DONTCACHE),
            550..590 => self.write(IoFlags::APPEND),
            590..650 => self.truncate(),
            650..720 => self.allocate(AllocateMode::PunchHole),
            720..780 => self.copy(),
            780..830 => self.read(IoFlags::DIRECT),
            830..880 => self.write(IoFlags::DIRECT),
            880..887 => {
                self.note("fsync".to_owned());
                self.check(self.fs.fsync(self.ino, 0, self.log.len().is_multiple_of(2)));
            }
            887 => self.remount(),
            _ if !self.subject.allocates() => self.read(IoFlags::empty()),
            888..910 => self.allocate(AllocateMode::Extend),
            910..930 => self.allocate(AllocateMode::KeepSize),
            930..960 => {
                let keep_size = self.rng.bool();
                self.allocate(AllocateMode::ZeroRange { keep_size });
            }
            960..980 => self.shift(AllocateMode::CollapseRange),
            _ => self.shift(AllocateMode::InsertRange),
        }
    }
}
