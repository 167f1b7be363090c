//! Operations on contents: read, write, truncate, allocate, seek, copy.

use cairn_vfs::{AllocateMode, FileKind, FileSystem, IoFlags, Seek, SetAttributes};

use super::{Duel, Pair};
use crate::transfer;

/// Largest size that operations reach.
const MAX: u64 = 400_000;

impl Duel<'_> {
    pub(super) fn data_step(&mut self) {
        let pair = self.target();
        // Only these inodes have contents; front-ends send no other requests.
        if !self.model.getattr(pair.model).is_ok_and(|found| found.kind == FileKind::Regular) {
            return;
        }
        match self.rng.u32(0..100) {
            0..25 => self.read(pair),
            25..55 => self.write(pair),
            55..65 => self.truncate(pair),
            65..85 => self.allocate(pair),
            85..92 => self.seek(pair),
            _ => self.copy(pair),
        }
    }

    fn range(&mut self) -> (u64, u64) {
        let offset =
            if self.rng.u8(0..3) == 0 { self.rng.u64(0..MAX) } else { self.rng.u64(0..20_000) };
        let len =
            if self.rng.u8(0..5) == 0 { self.rng.u64(1..60_000) } else { self.rng.u64(1..9000) };
        if self.rng.u8(0..3) == 0 {
            (offset & !4095, len.next_multiple_of(4096))
        } else {
            (offset, len)
        }
    }

    fn flags(&mut self) -> IoFlags {
        match self.rng.u32(0..40) {
            0..6 => IoFlags::DIRECT,
            6..10 => IoFlags::APPEND,
            10..13 => IoFlags::KILL_PRIVILEGES,
            13 => IoFlags::DSYNC,
            14 => IoFlags::SYNC,
            15..20 => IoFlags::DONTCACHE,
            _ => IoFlags::empty(),
        }
    }

    fn read(&mut self, pair: Pair) {
        let ((offset, len), flags) =
            (self.range(), self.flags() & (IoFlags::DIRECT | IoFlags::DONTCACHE));
        let (mut real, mut model) = (vec![0; len as usize], vec![0; len as usize]);
        let counts = (
            transfer::read(&*self.fs, pair.real, offset, &mut real, flags),
            self.model.read(pair.model, offset, &mut model, flags),
        );
        self.same(format!("read {pair:?} {offset}+{len} {flags:?}"), counts.0, counts.1);
        if let Some(at) = (0..real.len()).find(|at| real[*at] != model[*at]) {
            let (got, want) = (real[at], model[at]);
            self.fail(&format!("byte {} is {got:#x}, not {want:#x}", offset + at as u64));
        }
    }

    fn write(&mut self, pair: Pair) {
        let ((offset, len), flags) = (self.range(), self.flags());
        let mut data = vec![0; len as usize];
        self.rng.fill(&mut data);
        let real = transfer::write(&*self.fs, pair.real, offset, &data, flags);
        let model = self.model.write(pair.model, offset, &data, flags);
        self.same(format!("write {pair:?} {offset}+{len} {flags:?}"), real, model);
    }

    fn truncate(&mut self, pair: Pair) {
        // A truncation to the present size frees what was allocated beyond it.
        let present = self.model.getattr(pair.model).map_or(0, |found| found.size);
        let size = if self.rng.u8(0..8) == 0 { present } else { self.range().0 };
        let set = SetAttributes {
            size: Some(size),
            kill_privileges: self.rng.bool(),
            ..SetAttributes::default()
        };
        let real = self.fs.setattr(pair.real, &set);
        let model = self.model.setattr(pair.model, &set);
        if let Some((real, model)) = self.agree(format!("truncate {pair:?} to {size}"), real, model)
        {
            self.same_attributes(&real, &model);
        }
    }

    fn allocate(&mut self, pair: Pair) {
        let (mut offset, mut len) = self.range();
        let keep_size = self.rng.bool();
        let mode = match self.rng.u32(0..8) {
            0 => AllocateMode::Extend,
            1 => AllocateMode::KeepSize,
            2 => AllocateMode::ZeroRange { keep_size },
            3 | 4 => AllocateMode::CollapseRange,
            5 | 6 => AllocateMode::InsertRange,
            _ => AllocateMode::PunchHole,
        };
        let shifts = matches!(mode, AllocateMode::CollapseRange | AllocateMode::InsertRange);
        if !self.subject.allocates() && mode != AllocateMode::PunchHole {
            return;
        }
        // The block sizes differ. A range that is aligned to neither is refused by both.
        if shifts && self.rng.u8(0..5) > 0 {
            (offset, len) = (offset & !4095, len.next_multiple_of(4096));
        }
        if mode == AllocateMode::InsertRange
            && self.model.getattr(pair.model).is_ok_and(|found| found.size > MAX)
        {
            return;
        }
        let real = self.fs.allocate(pair.real, mode, offset, len);
        let model = self.model.allocate(pair.model, mode, offset, len);
        self.same(format!("{mode:?} {pair:?} {offset}+{len}"), real, model);
    }

    fn seek(&mut self, pair: Pair) {
        let offset = self.range().0;
        if !self.model.getattr(pair.model).is_ok_and(|found| found.kind == FileKind::Regular) {
            return;
        }
        let what = if self.rng.bool() { Seek::Data } else { Seek::Hole };
        let real = self.fs.seek(pair.real, offset, what);
        let size = self.model.getattr(pair.model).map_or(0, |found| found.size);
        match real {
            // The end of a hole may differ with what was written in between. A range that was
            // skipped has no data.
            Ok(found) if found < offset || found > size => {
                self.fail(&format!("{what:?} from {offset} found {found}"))
            }
            Ok(found) if what == Seek::Data => self.is_zero(pair, offset, found),
            Ok(_) => {}
            Err(error) => {
                let model = self.model.seek(pair.model, offset, what);
                match (error.errno(), model) {
                    (6, Ok(_)) if what == Seek::Data => self.is_zero(pair, offset, size),
                    (errno, Err(other)) if errno == other.errno() => {}
                    (_, other) => {
                        self.fail(&format!("{what:?} from {offset}: {error}, not {other:?}"))
                    }
                }
            }
        }
    }

    /// Asserts that a range that a seek skipped as a hole has no data.
    fn is_zero(&mut self, pair: Pair, from: u64, to: u64) {
        let mut buf = vec![0; (to - from) as usize];
        self.model.read(pair.model, from, &mut buf, IoFlags::empty()).unwrap();
        if let Some(at) = buf.iter().position(|byte| *byte != 0) {
            self.fail(&format!("seek from {from} passed over data at {}", from + at as u64));
        }
    }

    fn copy(&mut self, from: Pair) {
        let to = self.target();
        if !self.model.getattr(to.model).is_ok_and(|found| found.kind == FileKind::Regular) {
            return;
        }
        let ((offset, len), to_offset) = (self.range(), self.range().0);
        let real = self.fs.copy_range(from.real, offset, to.real, to_offset, len);
        let model = self.model.copy_range(from.model, offset, to.model, to_offset, len);
        self.same(format!("copy {from:?} {offset}+{len} to {to:?} {to_offset}"), real, model);
    }
}
