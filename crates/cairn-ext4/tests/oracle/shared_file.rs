//! Threads write, read, punch, zero and truncate one file at the same time, with all folio sizes
//! and a budget that evicts continually.
//!
//! The file is divided into pieces that begin and end within blocks, each with an owner. The thread
//! that owns the rest behind the last piece also changes the size. An owner knows every byte of its
//! pieces at any time, whatever the others do in the same blocks, folios and device requests.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cairn_base::Ino;
use cairn_ext4::Ext4;
use cairn_vfs::{AllocateMode, Caller, FileSystem, IoFlags, NewInode, SetAttributes};

use crate::support::{GRAINS, judge, open, volume};
use cairn_testkit::contention::Watchdog;
use cairn_testkit::deep;

/// Not a multiple of a block, so neighbours share blocks.
const PIECE: usize = 7_777;
const OWNERS: usize = 4;
const PIECES: usize = 240;
const BASE: usize = PIECE * PIECES;
const TAIL: usize = 300_000;

/// A piece, or the tail.
struct Piece {
    start: usize,
    bytes: Vec<u8>,
}

struct Owner {
    fs: Arc<Ext4>,
    ino: Ino,
    rng: fastrand::Rng,
    pieces: Vec<Piece>,
    /// The last piece ends with the file, and its end may move.
    tail: bool,
}

impl Owner {
    fn new(fs: &Arc<Ext4>, ino: Ino, number: usize) -> Self {
        let tail = number == OWNERS;
        let pieces = if tail {
            vec![Piece { start: BASE, bytes: Vec::new() }]
        } else {
            let own = (number..PIECES).step_by(OWNERS);
            own.map(|at| Piece { start: at * PIECE, bytes: vec![0; PIECE] }).collect()
        };
        Self { fs: fs.clone(), ino, rng: fastrand::Rng::with_seed(number as u64), pieces, tail }
    }

    fn step(&mut self) {
        if self.tail && self.rng.u8(0..3) == 0 {
            return self.resize();
        }
        let at = self.rng.usize(0..self.pieces.len());
        let len = self.pieces[at].bytes.len();
        let from = self.rng.usize(0..=len);
        let to = self.rng.usize(from..=len);
        match self.rng.u8(0..20) {
            _ if from == to => self.check(at),
            0..9 => self.write(at, from, to, IoFlags::empty()),
            9 => self.write(at, from, to, IoFlags::DSYNC),
            10 | 11 => self.clear(at, from, to, AllocateMode::PunchHole),
            12 => self.clear(at, from, to, AllocateMode::ZeroRange { keep_size: true }),
            13 => self.fs.fsync(self.ino, 0, self.rng.bool()).unwrap(),
            _ => self.check(at),
        }
    }

    fn write(&mut self, at: usize, from: usize, to: usize, flags: IoFlags) {
        let fill = self.rng.u8(1..);
        let piece = &mut self.pieces[at];
        piece.bytes[from..to].fill(fill);
        let written = self
            .fs
            .write(self.ino, (piece.start + from) as u64, &piece.bytes[from..to], flags)
            .unwrap();
        assert_eq!(written, to - from, "the volume has room");
    }

    fn clear(&mut self, at: usize, from: usize, to: usize, mode: AllocateMode) {
        let piece = &mut self.pieces[at];
        piece.bytes[from..to].fill(0);
        self.fs.allocate(self.ino, mode, (piece.start + from) as u64, (to - from) as u64).unwrap();
    }

    fn resize(&mut self) {
        let size = self.rng.usize(0..TAIL);
        let set = SetAttributes { size: Some((BASE + size) as u64), ..SetAttributes::default() };
        self.fs.setattr(self.ino, &set).unwrap();
        self.pieces[0].bytes.resize(size, 0);
    }

    fn check(&mut self, at: usize) {
        let direct = self.rng.u8(0..6) == 0;
        let piece = &self.pieces[at];
        let (start, len) = (piece.start, piece.bytes.len());
        // Direct reads are of whole blocks, with bytes of other owners around the piece.
        let begin = if direct { start / 4096 * 4096 } else { start };
        let end = if direct { (start + len).next_multiple_of(4096) } else { start + len };
        let mut buf = vec![0xee; end - begin];
        let flags = if direct { IoFlags::DIRECT } else { IoFlags::empty() };
        let got = self.fs.read(self.ino, begin as u64, &mut buf, flags).unwrap();
        assert!(
            got >= start - begin + len,
            "{got} bytes at {begin}, {len} are in the piece at {start}"
        );
        let found = &buf[start - begin..][..len];
        if let Some(wrong) = (0..len).find(|byte| found[*byte] != piece.bytes[*byte]) {
            let (byte, is, want) = (start + wrong, found[wrong], piece.bytes[wrong]);
            panic!("byte {byte} is {is:#x}, not {want:#x} (direct: {direct})");
        }
    }

    fn check_all(&mut self) {
        (0..self.pieces.len()).for_each(|at| self.check(at));
    }
}

#[test]
fn threads_own_parts_of_one_file() {
    let steps = if deep() { 60_000 } else { 1_500 };
    for grain in GRAINS {
        let device = volume(32 << 20, &["-t", "ext4", "-b", "4096"]);
        let options = format!("cache=1M,{grain}");
        let fs = open(&device, &options);
        let ino = fs.create(fs.root(), b"f", NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
        let base = SetAttributes { size: Some(BASE as u64), ..SetAttributes::default() };
        fs.setattr(ino, &base).unwrap();
        let watchdog = Watchdog::start("a shared file");
        let owners: Vec<Owner> = (0..=OWNERS).map(|number| Owner::new(&fs, ino, number)).collect();
        let mut owners: Vec<Owner> = std::thread::scope(|scope| {
            let run = |mut owner: Owner| {
                let progress = &watchdog.progress;
                scope.spawn(move || {
                    for _ in 0..steps {
                        owner.step();
                        progress.fetch_add(1, Ordering::Relaxed);
                    }
                    owner
                })
            };
            let threads: Vec<_> = owners.into_iter().map(run).collect();
            threads.into_iter().map(|thread| thread.join().expect("an owner panicked")).collect()
        });
        owners.iter_mut().for_each(Owner::check_all);
        drop(watchdog);
        fs.unmount().unwrap();
        judge(&device);
        let fs = open(&device, &options);
        let ino = fs.lookup(fs.root(), b"f").unwrap().ino;
        for mut owner in owners {
            (owner.fs, owner.ino) = (fs.clone(), ino);
            owner.check_all();
        }
        fs.unmount().unwrap();
    }
}
