//! Damaged images: whatever the bytes say, no panic, no endless walk, bounded memory, typed errors.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_ext4::Ext4;
use cairn_testkit::crash::read_image;
use cairn_testkit::judge::{KernelMount, mke2fs};
use cairn_testkit::mutate::Target;
use cairn_testkit::tree::{PathTarget, TreeSpec, build, plan};
use cairn_vfs::{Caller, FileKind, FileSystem, IoFlags, NewInode, RenameMode, Result, SetAttributes, XattrMode};

use crate::support::{deep, try_open};

/// Images of different layouts, all small.
const LAYOUTS: &[&[&str]] = &[
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^metadata_csum_seed"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^metadata_csum_seed,inline_data"],
    &["-t", "ext4", "-b", "4096", "-O", "^has_journal,^metadata_csum,^metadata_csum_seed,^64bit"],
    &["-t", "ext2", "-b", "1024"],
    &["-t", "ext3", "-b", "1024"],
];

/// Calls that one image may cost.
const CALLS: usize = 3000;

fn target(args: &[&str], seed: u64) -> Target {
    let file = tempfile::NamedTempFile::new().unwrap();
    mke2fs(file.path(), 4 << 20, args);
    let mount = KernelMount::new(file.path(), "");
    let spec = TreeSpec { directories: 6, files: 30, size_max: 20_000, ..TreeSpec::small(seed) };
    build(&PathTarget::new(mount.path()), &plan(&spec));
    for number in 0..60 {
        std::fs::write(mount.path().join(format!("a name that fills the block {number}")), b"x").unwrap();
    }
    mount.unmount();
    Target::of(read_image(file.path()).unwrap())
}

/// A walk that stops after so many calls.
struct Visitor<'a> {
    fs: &'a Ext4,
    calls: usize,
    errors: usize,
}

impl Visitor<'_> {
    fn call<T>(&mut self, result: Result<T>) -> Option<T> {
        self.calls += 1;
        // The message is made, too: it must not panic either.
        result.map_err(|error| self.errors += usize::from(!error.to_string().is_empty())).ok()
    }

    fn walk(&mut self) {
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

    fn change(&mut self) {
        let root = self.fs.root();
        let mut names = Vec::new();
        let listed = self.fs.readdir(root, 0, &mut |entry| {
            names.push(entry.name);
            names.len() < 40
        });
        self.call(listed);
        for (number, name) in names.iter().enumerate() {
            if let Some(found) = self.call(self.fs.lookup(root, name)) {
                self.call(self.fs.write(found.ino, 1000 * number as u64, &[7; 5000], IoFlags::empty()));
                self.call(self.fs.setxattr(found.ino, b"user.new", &[1; 300], XattrMode::Set));
                self.call(self.fs.setattr(found.ino, &SetAttributes { size: Some(77), ..SetAttributes::default() }));
                self.fs.forget(found.ino, 1);
            }
            let new = format!("new {number}");
            if let Some(made) =
                self.call(self.fs.create(root, new.as_bytes(), NewInode::Directory, 0o755, &Caller::ROOT))
            {
                self.call(self.fs.rename(root, name, made.ino, b"moved", RenameMode::Replace));
                self.fs.forget(made.ino, 1);
            }
            self.call(self.fs.unlink(root, name));
            self.call(self.fs.rmdir(root, name));
        }
        self.call(self.fs.sync());
    }
}

#[test]
fn damaged_images_are_survived() {
    let per_layout = if deep() { 50_000 } else { 1_670 };
    for (layout, args) in LAYOUTS.iter().enumerate() {
        let target = target(args, layout as u64);
        let (mut opened, mut refused, mut errors) = (0, 0, 0);
        for seed in 0..per_layout {
            let (device, damage) = target.mutate(seed);
            let writes = seed % 10 == 0;
            let survived = std::panic::catch_unwind(|| {
                let options = if writes { "cache=1M" } else { "ro,cache=1M" };
                let Ok(fs) = try_open(Arc::new(device), options) else { return None };
                let mut visitor = Visitor { fs: &fs, calls: 0, errors: 0 };
                visitor.walk();
                if writes {
                    visitor.change();
                }
                let closed = fs.unmount();
                visitor.call(closed);
                Some(visitor.errors)
            });
            match survived {
                Ok(Some(found)) => (opened, errors) = (opened + 1, errors + found),
                Ok(None) => refused += 1,
                Err(_) => {
                    panic!("{args:?}, seed {seed}: {}", damage.iter().map(|d| format!("{d}; ")).collect::<String>())
                }
            }
        }
        println!("{args:?}: {opened} opened, {refused} refused, {errors} errors");
        assert!(opened > per_layout / 4 && errors > 0, "{args:?}: {opened} opened, {errors} errors");
    }
}
