//! One file, random operations, and a vector of bytes that knows what must be in it.

use std::collections::VecDeque;
use std::sync::Arc;

use cairn_base::Ino;
use cairn_block::memory::MemoryDevice;
use cairn_f2fs::F2fs;
use cairn_vfs::{AllocateMode, FileSystem, IoFlags, SetAttributes};

use crate::support::{deep, judge, open, volume};

/// One kind of run.
struct Run {
    name: &'static str,
    args: &'static [&'static str],
    options: &'static str,
    /// Largest size of the file.
    max: u64,
}

struct Fsx<'a> {
    run: &'a Run,
    options: String,
    device: Arc<MemoryDevice>,
    fs: Arc<F2fs>,
    ino: Ino,
    expected: Vec<u8>,
    rng: fastrand::Rng,
    /// The last operations, for the failure message.
    log: VecDeque<String>,
}

impl<'a> Fsx<'a> {
    fn new(run: &'a Run, seed: u64) -> Self {
        let device = volume(96 << 20, run.args);
        let fs = open(device.clone(), run.options);
        let ino = fs.lookup(fs.root(), b"f").unwrap().ino;
        let rng = fastrand::Rng::with_seed(seed);
        let options = run.options.to_owned();
        Self { run, options, device, fs, ino, expected: Vec::new(), rng, log: VecDeque::new() }
    }

    fn note(&mut self, what: String) {
        if self.log.len() == 24 {
            self.log.pop_front();
        }
        self.log.push_back(what);
    }

    fn fail(&self, why: &str) -> ! {
        let log: Vec<_> = self.log.iter().map(String::as_str).collect();
        panic!("{} ({}): {why}; last operations:\n{}", self.run.name, self.options, log.join("\n"));
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
            offset -= offset % 4096;
            len = len.next_multiple_of(4096).min(self.run.max.saturating_sub(offset)).max(1);
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
        let got = self.check(self.fs.read(self.ino, offset, &mut buf, flags));
        let expected = self.part(offset, len).to_vec();
        if got != expected.len() {
            self.fail(&format!("read {offset}+{len} gave {got} bytes, not {}; size {}", expected.len(), self.size()));
        }
        if let Some(at) = (0..got).find(|at| buf[*at] != expected[*at]) {
            let (found, want) = (buf[at], expected[at]);
            self.fail(&format!("read {offset}+{len}: byte {} is {found:#x}, not {want:#x}", offset + at as u64));
        }
    }

    fn write(&mut self, flags: IoFlags) {
        let (mut offset, len) = self.range(self.run.max);
        if flags.contains(IoFlags::APPEND) {
            offset = self.size();
            if offset + len > self.run.max {
                return;
            }
        }
        let mut data = vec![0; usize::try_from(len).unwrap()];
        self.rng.fill(&mut data);
        self.note(format!("write {offset}+{len} {flags:?}, size {}", self.size()));
        let written = self.check(self.fs.write(self.ino, offset, &data, flags));
        if written != data.len() {
            self.fail("short write");
        }
        self.grow(offset + len);
        self.part(offset, len).copy_from_slice(&data);
    }

    fn truncate(&mut self) {
        let size = if self.rng.bool() { self.rng.u64(0..=self.run.max) } else { self.rng.u64(0..=self.size()) };
        self.note(format!("truncate {} to {size}", self.size()));
        self.check(self.fs.setattr(self.ino, &SetAttributes { size: Some(size), ..SetAttributes::default() }));
        self.expected.resize(usize::try_from(size).unwrap(), 0);
    }

    fn allocate(&mut self, mode: AllocateMode) {
        let (offset, len) = self.range(self.run.max);
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
        let block = 4096_u64;
        let blocks = self.size() / block;
        if blocks < 3 {
            return;
        }
        let offset = self.rng.u64(0..blocks) * block;
        let len = self.rng.u64(1..=8) * block;
        let insert = mode == AllocateMode::InsertRange;
        if (insert && self.size() + len > self.run.max) || (!insert && offset + len >= self.size()) {
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
        let to = self.rng.u64(0..self.run.max - len);
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
        judge(&self.device);
        self.fs = open(self.device.clone(), &self.options);
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
            0..300 => self.read(IoFlags::empty()),
            300..550 => self.write(IoFlags::empty()),
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

const RUNS: &[Run] = &[
    Run { name: "default", args: &[], options: "", max: 256 << 10 },
    Run { name: "lfs", args: &[], options: "mode=lfs,nobuffered_iomap", max: 256 << 10 },
    Run { name: "small cache", args: &[], options: "cache=1M,max_folio=64K", max: 12 << 20 },
    Run { name: "small cache, lfs", args: &["-s", "2"], options: "cache=1M,mode=lfs", max: 12 << 20 },
];

#[test]
fn a_file_is_what_was_done_to_it() {
    let steps = if deep() { 300_000 } else { 6000 };
    for (seed, run) in (1..).zip(RUNS) {
        let mut fsx = Fsx::new(run, seed);
        for step in 0..steps {
            fsx.step();
            if step % 1000 == 0 {
                fsx.verify_all();
            }
        }
        fsx.remount();
        fsx.fs.unmount().unwrap();
        judge(&fsx.device);
    }
}
