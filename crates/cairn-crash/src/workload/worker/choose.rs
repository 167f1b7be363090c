//! The seeded choice of the next operation.

use cairn_vfs::{AllocateMode, IoFlags};

use super::{FILES_MAX, SIZE_MAX, Worker};
use crate::workload::op::Op;
use crate::workload::pattern::{MOVING, WORD};

const BLOCK: u64 = 4096;

impl Worker {
    /// The next operation of the seed. The model must not change until it is applied.
    pub fn choose(&mut self) -> Op {
        match self.random.u8(..48) {
            _ if self.files.is_empty() => self.choose_create(),
            0..=3 => self.choose_create(),
            4..=8 => self.choose_append(),
            9..=13 => self.choose_overwrite(),
            14 | 15 => self.choose_truncate(),
            16..=18 => self.choose_rename(),
            19 => Op::Link { id: self.pick_file(), path: self.new_path() },
            20 | 21 => self.choose_unlink(),
            22 if self.unlinked.is_empty() => self.choose_unlink(),
            22 => Op::WriteUnlinked,
            23 => Op::MakeDirectory { path: self.new_path() },
            24 => self.choose_remove_directory(),
            25 => Op::Symlink { path: self.new_path(), len: self.random.usize(1..200) },
            26 | 27 => self.choose_attribute(),
            28 | 29 => self.choose_preallocate(),
            30 => self.choose_punch(),
            31 => self.choose_shift(),
            32..=35 => Op::Fsync { id: self.pick_file(), data_only: false },
            36..=38 => Op::Fsync { id: self.pick_file(), data_only: true },
            39 | 40 => {
                let at = self.random.usize(..self.directories.len());
                let path = self.directories.keys().nth(at).expect("within").clone();
                Op::SyncDirectory { path, data_only: self.random.bool() }
            }
            41..=43 => self.choose_direct(),
            44 => Op::Evict { id: self.pick_file() },
            _ => Op::Sync,
        }
    }

    /// Often the same file again: what was written is then fsynced with nothing in between.
    fn pick_file(&mut self) -> u16 {
        let again = self.random.u8(..3) == 0;
        if let Some(last) = self.last_picked.filter(|last| again && self.files.contains_key(last)) {
            return last;
        }
        let at = self.random.usize(..self.files.len());
        let picked = *self.files.keys().nth(at).expect("within");
        self.last_picked = Some(picked);
        picked
    }

    /// Long names fill blocks, so that directories grow.
    fn new_path(&mut self) -> String {
        let at = self.random.usize(..self.directories.len());
        let dir = self.directories.keys().nth(at).cloned().expect("within");
        self.next_name += 1;
        let name =
            format!("{}-{}-{}", self.number, self.next_name, "n".repeat(self.random.usize(..60)));
        if dir.is_empty() { name } else { format!("{dir}/{name}") }
    }

    fn words(&mut self, most: u64) -> u64 {
        self.random.u64(1..=(most / WORD).max(1)) * WORD
    }

    fn size(&self, id: u16) -> u64 {
        self.files[&id].bytes.len() as u64
    }

    fn choose_create(&mut self) -> Op {
        if self.files.len() >= FILES_MAX {
            return self.choose_unlink();
        }
        let path = self.new_path();
        self.next_id += 1;
        let moving = if self.random.u8(..6) == 0 { MOVING } else { 0 };
        Op::Create { id: moving | self.number << 12 | self.next_id, path }
    }

    fn choose_write(&mut self, id: u16, offset: u64, len: u64, flags: IoFlags) -> Op {
        let flags = flags
            | match self.random.u8(..16) {
                0..2 => IoFlags::DSYNC,
                2..5 => IoFlags::DONTCACHE,
                _ => IoFlags::empty(),
            };
        Op::Write { id, offset, len, flags }
    }

    fn choose_append(&mut self) -> Op {
        let id = self.pick_file();
        if self.size(id) >= SIZE_MAX {
            return self.choose_truncate();
        }
        let len = self.words(12 << 10);
        self.choose_write(id, self.size(id), len, IoFlags::empty())
    }

    fn choose_overwrite(&mut self) -> Op {
        let id = self.pick_file();
        // Sometimes far behind the end.
        let far = self.random.u8(..5) == 0;
        let reach = if far { SIZE_MAX } else { self.size(id).max(WORD) };
        let offset = self.words(reach) - WORD;
        let len = self.words(10 << 10);
        self.choose_write(id, offset, len, IoFlags::empty())
    }

    /// Whole blocks with direct I/O, behind the end or before it.
    fn choose_direct(&mut self) -> Op {
        let id = self.pick_file();
        let size = self.size(id);
        let extends = size < SIZE_MAX && self.random.bool();
        let block = if extends { size.div_ceil(BLOCK) } else { self.random.u64(..=size / BLOCK) };
        let len = self.random.u64(1..4) * BLOCK;
        self.choose_write(id, block * BLOCK, len, IoFlags::DIRECT)
    }

    fn choose_truncate(&mut self) -> Op {
        Op::Truncate { id: self.pick_file(), size: self.words(SIZE_MAX) - WORD }
    }

    fn choose_attribute(&mut self) -> Op {
        let id = self.pick_file();
        let (byte, len) = (self.random.u8(..), self.random.usize(1..300));
        let remove = self.files[&id].xattr.is_some() && self.random.bool();
        if remove { Op::RemoveXattr { id } } else { Op::SetXattr { id, byte, len } }
    }

    fn choose_preallocate(&mut self) -> Op {
        let id = self.pick_file();
        let (offset, len) = (self.words(SIZE_MAX) - WORD, self.words(16 << 10));
        let mode = if self.random.bool() { AllocateMode::Extend } else { AllocateMode::KeepSize };
        Op::Allocate { id, mode, offset, len }
    }

    fn choose_punch(&mut self) -> Op {
        let id = self.pick_file();
        let (offset, len) = (self.words(SIZE_MAX) - WORD, self.words(16 << 10));
        let zero = AllocateMode::ZeroRange { keep_size: true };
        let mode = if self.random.bool() { AllocateMode::PunchHole } else { zero };
        Op::Allocate { id, mode, offset, len }
    }

    /// Collapses or inserts a range of a file whose contents may move.
    fn choose_shift(&mut self) -> Op {
        let Some(id) = self.files.keys().copied().find(|id| *id >= MOVING) else {
            return self.choose_punch();
        };
        let blocks = self.size(id) / BLOCK;
        if blocks < 2 {
            return self.choose_append();
        }
        let offset = self.random.u64(..blocks - 1) * BLOCK;
        let insert = self.random.bool() && self.size(id) < SIZE_MAX;
        let mode = if insert { AllocateMode::InsertRange } else { AllocateMode::CollapseRange };
        Op::Allocate { id, mode, offset, len: BLOCK }
    }

    fn first_name(&self, id: u16) -> String {
        self.files[&id].names.first().expect("a name").clone()
    }

    fn choose_rename(&mut self) -> Op {
        let (id, target) = (self.pick_file(), self.pick_file());
        let replace = self.random.bool() && target != id;
        let to = if replace { self.first_name(target) } else { self.new_path() };
        Op::Rename { from: self.first_name(id), to, held: self.random.bool() }
    }

    fn choose_unlink(&mut self) -> Op {
        let id = self.pick_file();
        Op::Unlink { path: self.first_name(id), held: self.random.bool() }
    }

    fn choose_remove_directory(&mut self) -> Op {
        let mine = format!("{}-", self.number);
        let own =
            |path: &&String| path.rsplit('/').next().is_some_and(|name| name.starts_with(&mine));
        match self.directories.keys().rfind(own).cloned() {
            Some(path) => Op::RemoveDirectory { path },
            None => Op::MakeDirectory { path: self.new_path() },
        }
    }
}
