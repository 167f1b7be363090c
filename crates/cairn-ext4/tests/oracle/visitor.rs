//! Reads and changes an unknown volume, with a limited number of calls.

use cairn_base::Ino;
use cairn_ext4::Ext4;
use cairn_vfs::{
    Caller, FileKind, FileSystem, IoFlags, NewInode, RenameMode, Result, SetAttributes, XattrMode,
};

/// Limit of calls per image.
const CALLS: usize = 3000;

/// A walk with a limited number of calls.
pub struct Visitor<'a> {
    fs: &'a Ext4,
    calls: usize,
    /// Calls that failed.
    pub errors: usize,
}

impl<'a> Visitor<'a> {
    pub fn new(fs: &'a Ext4) -> Self {
        Self { fs, calls: 0, errors: 0 }
    }

    pub fn call<T>(&mut self, result: Result<T>) -> Option<T> {
        self.calls += 1;
        // Formats the message, which must not panic.
        result.map_err(|error| self.errors += usize::from(!error.to_string().is_empty())).ok()
    }

    /// All calls that read.
    pub fn walk(&mut self) {
        let mut pending = vec![(self.fs.root(), 0)];
        while let Some((dir, depth)) = pending.pop() {
            let mut names = Vec::new();
            let listed = self.fs.readdir(dir, 0, &mut |entry| {
                names.push(entry.name);
                names.len() < CALLS
            });
            self.call(listed);
            for name in names {
                if self.calls > CALLS {
                    return;
                }
                let Some(found) = self.call(self.fs.lookup(dir, &name)) else { continue };
                self.visit(found.ino, found.kind, found.size);
                if found.kind == FileKind::Directory && depth < 8 && name != b"." && name != b".." {
                    pending.push((found.ino, depth + 1));
                }
                self.fs.forget(found.ino, 1);
            }
        }
    }

    fn visit(&mut self, ino: Ino, kind: FileKind, size: u64) {
        for name in self.call(self.fs.listxattr(ino)).unwrap_or_default() {
            self.call(self.fs.getxattr(ino, &name));
        }
        match kind {
            FileKind::Regular => {
                let mut buf = vec![0; 65_536];
                for offset in [0, 3, 65_536, size / 2, size.saturating_sub(10)] {
                    self.call(self.fs.read(ino, offset, &mut buf, IoFlags::empty()));
                }
                let mut extents = 0;
                let mapped = self.fs.extents(ino, 0, u64::MAX, false, &mut |_| {
                    extents += 1;
                    extents < CALLS
                });
                self.call(mapped);
            }
            FileKind::Symlink => drop(self.call(self.fs.readlink(ino))),
            _ => {}
        }
    }

    /// Some calls of each kind that change the volume.
    pub fn change(&mut self) {
        let root = self.fs.root();
        let mut names = Vec::new();
        let listed = self.fs.readdir(root, 0, &mut |entry| {
            names.push(entry.name);
            names.len() < 40
        });
        self.call(listed);
        for (number, name) in names.iter().enumerate() {
            if let Some(found) = self.call(self.fs.lookup(root, name)) {
                self.call(self.fs.write(
                    found.ino,
                    1000 * number as u64,
                    &[7; 5000],
                    IoFlags::empty(),
                ));
                self.call(self.fs.setxattr(found.ino, b"user.new", &[1; 300], XattrMode::Set));
                self.call(self.fs.setattr(
                    found.ino,
                    &SetAttributes { size: Some(77), ..SetAttributes::default() },
                ));
                self.fs.forget(found.ino, 1);
            }
            let new = format!("new {number}");
            if let Some(made) = self.call(self.fs.create(
                root,
                new.as_bytes(),
                NewInode::Directory,
                0o755,
                &Caller::ROOT,
            )) {
                self.call(self.fs.rename(root, name, made.ino, b"moved", RenameMode::Replace));
                self.fs.forget(made.ino, 1);
            }
            self.call(self.fs.unlink(root, name));
            self.call(self.fs.rmdir(root, name));
        }
        self.call(self.fs.sync());
    }
}
