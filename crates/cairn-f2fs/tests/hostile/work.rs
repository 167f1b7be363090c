//! All operations that change a volume, on the inodes that a damaged volume shows. All may fail;
//! none may panic or hang.

use cairn_base::Ino;
use cairn_f2fs::F2fs;
use cairn_vfs::{
    AllocateMode, Caller, FileSystem, IoFlags, NewInode, RenameMode, Result, SetAttributes,
    SetTime, XattrMode,
};

use crate::tour;
use crate::zones::assert_no_zone_is_left;

/// Blocks of the volume. A damaged volume may report any number.
const MOST: u64 = 1 << 15;
/// Inodes that are worked on.
const INODES: usize = 60;

/// Changes the volume, syncs it if possible, and closes it. Returns the number of successful calls.
/// With `worn` all free space is first written and half of it overwritten, so that sections are
/// cleaned.
pub fn upon(fs: &F2fs, seed: u64, worn: bool) -> usize {
    let mut worker = Worker { fs, rng: fastrand::Rng::with_seed(seed), done: 0 };
    if worn {
        worker.wear();
    }
    let mut found = Vec::new();
    tour::inodes(fs, INODES, &mut |ino| found.push(ino));
    worker.rng.shuffle(&mut found);
    for ino in found {
        worker.attributes(ino);
        worker.data(ino);
        worker.names(ino);
    }
    for part in 0..8_u64 {
        let made = worker.make(fs.root(), format!("made {part}").as_bytes(), NewInode::Regular);
        if let Some(ino) = made {
            worker.count(fs.write(ino, part << 20, &vec![part as u8; 400_000], IoFlags::empty()));
            worker.count(fs.fsync(ino, 0, part % 2 == 0));
        }
    }
    worker.count(fs.sync());
    worker.count(fs.trim(0, u64::MAX, 0));
    worker.count(fs.statfs());
    let _ = fs.report();
    worker.count(fs.remount("ro"));
    worker.count(fs.remount("rw"));
    worker.make(fs.root(), b"the last", NewInode::Directory);
    if worker.count(fs.unmount()).is_some() {
        assert_no_zone_is_left(fs);
    }
    worker.done
}

struct Worker<'a> {
    fs: &'a F2fs,
    rng: fastrand::Rng,
    done: usize,
}

impl Worker<'_> {
    fn count<T>(&mut self, outcome: Result<T>) -> Option<T> {
        if let Err(error) = &outcome {
            assert!(!error.to_string().is_empty());
        }
        self.done += usize::from(outcome.is_ok());
        outcome.ok()
    }

    fn make(&mut self, parent: Ino, name: &[u8], new: NewInode<'_>) -> Option<Ino> {
        let made = self.count(self.fs.create(parent, name, new, 0o755, &Caller::ROOT))?;
        self.fs.forget(made.ino, 1);
        Some(made.ino)
    }

    fn wear(&mut self) {
        let fs = self.fs;
        let Some(free) = self.count(fs.statfs()).map(|found| found.free_blocks.min(MOST) << 12)
        else {
            return;
        };
        let Some(ino) = self.make(fs.root(), b"worn", NewInode::Regular) else { return };
        // The other half of each piece is written last.
        for offset in [0, 1 << 16, 0] {
            for at in (offset..free.saturating_sub(1 << 20)).step_by(1 << 17) {
                if self.count(fs.write(ino, at, &[7; 1 << 16], IoFlags::empty())).is_none() {
                    return;
                }
            }
            self.count(fs.sync());
        }
    }

    fn attributes(&mut self, ino: Ino) {
        let fs = self.fs;
        let set = SetAttributes {
            permissions: Some(0o700),
            uid: Some(7),
            mtime: Some(SetTime::Now),
            ..Default::default()
        };
        self.count(fs.setattr(ino, &set));
        let len = self.rng.usize(..3000);
        self.count(fs.setxattr(ino, b"user.set", &vec![1; len], XattrMode::Set));
        self.count(fs.removexattr(ino, b"user.name"));
    }

    fn data(&mut self, ino: Ino) {
        let fs = self.fs;
        let size = fs.getattr(ino).map_or(0, |found| found.size);
        let offset = [0, 3000, size, size / 2, 3_700_000][self.rng.usize(..5)];
        let bytes = vec![9; self.rng.usize(1..50_000)];
        self.count(fs.write(ino, offset, &bytes, IoFlags::empty()));
        if self.rng.bool() {
            let data_only = self.rng.bool();
            self.count(fs.fsync(ino, 0, data_only));
        }
        let range = (self.rng.u64(..100_000), self.rng.u64(1..300_000));
        let modes = [
            AllocateMode::PunchHole,
            AllocateMode::KeepSize,
            AllocateMode::ZeroRange { keep_size: true },
        ];
        let mode = modes[self.rng.usize(..3)];
        self.count(fs.allocate(ino, mode, range.0, range.1));
        if self.rng.bool() {
            let to = if self.rng.bool() { size / 2 } else { 0 };
            self.count(fs.setattr(ino, &SetAttributes { size: Some(to), ..Default::default() }));
        }
    }

    /// The operations on a directory.
    fn names(&mut self, ino: Ino) {
        let fs = self.fs;
        let names = tour::names(fs, ino);
        let names: Vec<_> =
            names.iter().filter(|name| !matches!(name.as_slice(), b"." | b"..")).collect();
        for name in names.iter().take(12) {
            match self.rng.u8(..4) {
                0 => {
                    if self.count(fs.unlink(ino, name)).is_none() {
                        self.count(fs.rmdir(ino, name));
                    }
                }
                1 => {
                    self.count(fs.rename(ino, name, fs.root(), b"renamed", RenameMode::Replace));
                }
                2 => {
                    let other = names[self.rng.usize(..names.len())];
                    self.count(fs.rename(ino, name, ino, other, RenameMode::Exchange));
                }
                _ => {
                    if let Some(found) = self.count(fs.lookup(ino, name)) {
                        if let Some(linked) = self.count(fs.link(found.ino, ino, b"a second name"))
                        {
                            fs.forget(linked.ino, 1);
                        }
                        fs.forget(found.ino, 1);
                    }
                }
            }
        }
        self.make(ino, b"new directory", NewInode::Directory);
        self.make(ino, b"new link", NewInode::Symlink(b"target"));
        self.count(fs.fsync(ino, 0, false));
    }
}
