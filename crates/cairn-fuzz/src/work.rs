//! Operations that an input asks for, on the inodes of a volume.

use cairn_base::Ino;
use cairn_vfs::{
    AllocateMode, Caller, FileSystem, IoFlags, NewInode, OpenMode, RenameMode, SetAttributes,
    SetTime, XattrMode,
};

use crate::records::Operation;
use crate::tour::{names, told};

/// Most inodes that operations choose from.
const KNOWN: usize = 40;
/// Offsets in a file are below this, so that the volume does not become full at once.
const SPAN: u64 = 1 << 23;

/// A name that was found or made.
struct Entry {
    parent: Ino,
    name: Vec<u8>,
    ino: Ino,
}

struct Worker<'a> {
    fs: &'a dyn FileSystem,
    entries: Vec<Entry>,
}

/// Carries operations out. Returns how many succeeded.
pub(crate) fn run(fs: &dyn FileSystem, operations: &[Operation]) -> usize {
    let mut worker = Worker { fs, entries: Vec::new() };
    worker.find();
    let done = operations.iter().filter(|operation| worker.one(operation).is_some()).count();
    // Inodes that were unlinked while they are in use are deleted by a mount that may write.
    told(fs.remount("rw"));
    for entry in worker.entries {
        fs.forget(entry.ino, 1);
    }
    done
}

impl Worker<'_> {
    /// Looks names up, breadth first.
    fn find(&mut self) {
        let mut next = 0;
        let mut dir = self.fs.root();
        loop {
            for (name, _) in names(self.fs, dir) {
                if self.entries.len() >= KNOWN {
                    return;
                }
                if name == b"." || name == b".." {
                    continue;
                }
                if let Some(found) = told(self.fs.lookup(dir, &name)) {
                    self.entries.push(Entry { parent: dir, name, ino: found.ino });
                }
            }
            let Some(entry) = self.entries.get(next) else { return };
            (dir, next) = (entry.ino, next + 1);
        }
    }

    fn ino(&self, number: u16) -> Ino {
        match self.entries.len() {
            0 => self.fs.root(),
            len if usize::from(number) % (len + 1) == len => self.fs.root(),
            len => self.entries[usize::from(number) % (len + 1) % len].ino,
        }
    }

    fn entry(&self, number: u16) -> Option<&Entry> {
        self.entries.get(usize::from(number) % self.entries.len().max(1))
    }

    /// A name, short or long.
    fn name(number: u16) -> Vec<u8> {
        let long = if number.is_multiple_of(5) { usize::from(number) % 240 } else { 0 };
        let mut name = format!("n{}", number % 64).into_bytes();
        name.resize(name.len() + long, b'x');
        name
    }

    fn one(&mut self, what: &Operation) -> Option<()> {
        match what.kind % 4 {
            0 => self.names(what),
            1 => self.data(what),
            2 => self.attributes(what),
            _ => self.whole(what),
        }
    }

    fn make(&mut self, what: &Operation, new: NewInode<'_>) -> Option<()> {
        let (parent, name) = (self.ino(what.subject), Self::name(what.other));
        let caller = Caller { uid: u32::from(what.len), ..Caller::ROOT };
        let made = told(self.fs.create(parent, &name, new, u32::from(what.len) & 0o7777, &caller))?;
        self.entries.push(Entry { parent, name, ino: made.ino });
        Some(())
    }

    fn names(&mut self, what: &Operation) -> Option<()> {
        match what.mode % 12 {
            0 | 1 => self.make(what, NewInode::Regular),
            2 => self.make(what, NewInode::Directory),
            3 => {
                let target = vec![b't'; usize::from(what.len) % 4095 + 1];
                self.make(what, NewInode::Symlink(&target))
            }
            4 => self.make(what, NewInode::CharDevice(what.offset as u32)),
            5 => {
                let (parent, ino) = (self.ino(what.other), self.ino(what.subject));
                let name = Self::name(what.len);
                let made = told(self.fs.link(ino, parent, &name))?;
                self.entries.push(Entry { parent, name, ino: made.ino });
                Some(())
            }
            6 => {
                let made = told(self.fs.tmpfile(self.ino(what.subject), 0o600, &Caller::ROOT))?;
                told(self.fs.write(made.ino, what.offset % SPAN, &[3; 100], IoFlags::empty()));
                self.fs.forget(made.ino, 1);
                Some(())
            }
            7 | 8 => {
                let entry = self.entry(what.subject)?;
                told(self.fs.unlink(entry.parent, &entry.name))
            }
            9 => {
                let entry = self.entry(what.subject)?;
                told(self.fs.rmdir(entry.parent, &entry.name))
            }
            _ => self.rename(what),
        }
    }

    fn rename(&self, what: &Operation) -> Option<()> {
        let entry = self.entry(what.subject)?;
        let modes = [
            RenameMode::Replace,
            RenameMode::NoReplace,
            RenameMode::Exchange,
            RenameMode::Whiteout(Caller::ROOT),
        ];
        let mode = modes[usize::from(what.len) % modes.len()];
        let (parent, name) = match self.entry(what.other).filter(|_| what.offset & 1 == 0) {
            Some(other) => (other.parent, other.name.clone()),
            None => (self.ino(what.other), Self::name(what.len)),
        };
        told(self.fs.rename(entry.parent, &entry.name, parent, &name, mode))
    }

    fn data(&self, what: &Operation) -> Option<()> {
        let (fs, ino) = (self.fs, self.ino(what.subject));
        let (offset, len) = (what.offset % SPAN, u64::from(what.len));
        match what.mode % 10 {
            0..3 => {
                let flags = if what.other.is_multiple_of(4) {
                    IoFlags::from_bits_truncate(1)
                } else {
                    IoFlags::empty()
                };
                let bytes = vec![what.other as u8; usize::from(what.len)];
                told(fs.write(ino, offset, &bytes, flags)).map(drop)
            }
            3 => {
                let size = Some(what.offset % (SPAN * 4));
                told(fs.setattr(ino, &SetAttributes { size, ..Default::default() })).map(drop)
            }
            4..6 => {
                let modes = [
                    AllocateMode::Extend,
                    AllocateMode::KeepSize,
                    AllocateMode::PunchHole,
                    AllocateMode::ZeroRange { keep_size: false },
                    AllocateMode::CollapseRange,
                    AllocateMode::InsertRange,
                ];
                let mode = modes[usize::from(what.other) % modes.len()];
                // The last two take whole blocks only.
                let (offset, len) = match what.other & 0x100 {
                    0 => (offset, len),
                    _ => (offset & !0xfff, (len << 4) & !0xfff),
                };
                told(fs.allocate(ino, mode, offset, len))
            }
            6 => {
                let handle = told(fs.open(ino, OpenMode { write: true, direct: false }))?;
                let done = told(fs.fsync(ino, handle, what.other & 1 == 0));
                fs.release(ino, handle);
                done
            }
            7 => {
                let to = self.ino(what.other);
                told(fs.copy_range(ino, offset, to, len, len * 3)).map(drop)
            }
            _ => {
                let mut buffer = vec![0; usize::from(what.len)];
                told(fs.read(ino, offset, &mut buffer, IoFlags::empty())).map(drop)
            }
        }
    }

    fn attributes(&self, what: &Operation) -> Option<()> {
        let (fs, ino) = (self.fs, self.ino(what.subject));
        let name = [&b"user.a"[..], b"user.second", b"trusted.t", b"security.capability"]
            [usize::from(what.other) % 4];
        match what.mode % 4 {
            0 => {
                let value = vec![7; usize::from(what.len) % 5000];
                told(fs.setxattr(ino, name, &value, XattrMode::Set))
            }
            1 => told(fs.removexattr(ino, name)),
            _ => {
                let set = SetAttributes {
                    permissions: (what.other & 1 == 0).then_some(u32::from(what.len) & 0o7777),
                    uid: (what.other & 2 == 0).then_some(what.offset as u32),
                    gid: (what.other & 4 == 0).then_some(u32::from(what.len)),
                    mtime: (what.other & 8 == 0).then_some(SetTime::Now),
                    ..Default::default()
                };
                told(fs.setattr(ino, &set)).map(drop)
            }
        }
    }

    fn whole(&self, what: &Operation) -> Option<()> {
        match what.mode % 8 {
            0 | 1 => told(self.fs.sync()),
            2 => told(self.fs.trim(0, u64::MAX, 0)).map(drop),
            3 => told(self.fs.remount("ro")),
            4 => told(self.fs.remount("rw")),
            5 => told(self.fs.freeze()).and_then(|()| told(self.fs.thaw())),
            6 => told(self.fs.set_label(&Self::name(what.other)[..2])),
            _ => told(self.fs.statfs()).map(drop),
        }
    }
}
