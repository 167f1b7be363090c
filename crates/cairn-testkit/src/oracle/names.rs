//! Operations on entries: create, link, remove, rename, look up, hold.

use cairn_vfs::{Caller, FileKind, FileSystem, NewInode, RenameMode, Result};

use super::{Duel, Pair};

/// References held at once.
const HELD: usize = 10;

impl Duel<'_> {
    pub(super) fn names_step(&mut self) {
        match self.rng.u32(0..100) {
            0..28 => self.create(),
            28..36 => self.link(),
            36..50 => self.remove(),
            50..66 => self.rename(),
            66..90 => self.hold(),
            90..95 => self.tmpfile(),
            _ => self.drop_held(),
        }
    }

    fn caller(&mut self) -> Caller {
        let umask = [0, 0o022, 0o077][self.rng.usize(0..3)];
        let (uid, gid) = (self.rng.u32(0..3) * 1000, self.rng.u32(0..3) * 1000);
        Caller { uid, gid, umask, inherits: uid < 2000 || gid < 2000 }
    }

    pub(super) fn create(&mut self) {
        let (dir, name, caller) = (self.dir(), self.name(), self.caller());
        let permissions = [0o644, 0o7777, 0o600, 0o755, 0o2775][self.rng.usize(0..5)];
        let target = vec![b't'; [1, 30, 59, 60, 61, 900][self.rng.usize(0..6)]];
        let new = match self.rng.u32(0..20) {
            0..10 => NewInode::Regular,
            10..14 => NewInode::Directory,
            14..17 => NewInode::Symlink(&target),
            17 => NewInode::Fifo,
            18 => NewInode::CharDevice(0x0103),
            _ => [NewInode::BlockDevice(0x0801), NewInode::Socket][self.rng.usize(0..2)].clone(),
        };
        let what = format!(
            "create {} in {dir:?}: {:?} {permissions:o} {caller:?}",
            name.escape_ascii(),
            kind(&new)
        );
        let real = self.fs.create(dir.real, &name, new.clone(), permissions, &caller);
        let model = self.model.create(dir.model, &name, new, permissions, &caller);
        let Some((real, model)) = self.agree(what, any_reason(real, &model), model) else { return };
        self.same_attributes(&real, &model);
        let pair = Pair { real: real.ino, model: model.ino };
        if real.kind == FileKind::Directory && self.dirs.len() < 12 {
            self.dirs.push(pair);
        }
        self.keep(pair);
    }

    /// Holds a reference that was just taken, or drops it if there are enough.
    fn keep(&mut self, pair: Pair) {
        if self.held.len() < HELD {
            self.held.push(pair);
        } else {
            self.forget(pair);
        }
    }

    fn link(&mut self) {
        let (pair, dir, name) = (self.target(), self.dir(), self.name());
        let real = self.fs.link(pair.real, dir.real, &name);
        let model = self.model.link(pair.model, dir.model, &name);
        let real = any_reason(real, &model);
        if let Some((real, model)) =
            self.agree(format!("link {pair:?} as {} in {dir:?}", name.escape_ascii()), real, model)
        {
            self.same_attributes(&real, &model);
            self.forget(pair);
        }
    }

    fn remove(&mut self) {
        let (dir, name) = (self.dir(), self.name());
        let at = format!("{} in {dir:?}", name.escape_ascii());
        let (what, real, model) = if self.rng.u8(0..3) == 0 {
            ("rmdir", self.fs.rmdir(dir.real, &name), self.model.rmdir(dir.model, &name))
        } else {
            ("unlink", self.fs.unlink(dir.real, &name), self.model.unlink(dir.model, &name))
        };
        self.same(format!("{what} {at}"), any_reason(real, &model), model);
        self.prune();
    }

    fn rename(&mut self) {
        let (dir, name, new_dir, new_name) = (self.dir(), self.name(), self.dir(), self.name());
        if (dir.model, &name) == (new_dir.model, &new_name) {
            return;
        }
        let mode = match self.rng.u8(0..7) {
            0 => RenameMode::NoReplace,
            1 => RenameMode::Exchange,
            2 => RenameMode::Whiteout(Caller::ROOT),
            _ => RenameMode::Replace,
        };
        let what = format!(
            "rename {} in {dir:?} to {} in {new_dir:?}, {mode:?}",
            name.escape_ascii(),
            new_name.escape_ascii()
        );
        let real = self.fs.rename(dir.real, &name, new_dir.real, &new_name, mode);
        let model = self.model.rename(dir.model, &name, new_dir.model, &new_name, mode);
        self.same(what, any_reason(real, &model), model);
        self.prune();
    }

    fn hold(&mut self) {
        let dir = self.dir();
        let name = match self.rng.u32(0..30) {
            0 => b".".to_vec(),
            1 => b"..".to_vec(),
            _ => self.name(),
        };
        let real = self.fs.lookup(dir.real, &name);
        let model = self.model.lookup(dir.model, &name);
        if let Some((real, model)) =
            self.agree(format!("lookup {} in {dir:?}", name.escape_ascii()), real, model)
        {
            self.same_attributes(&real, &model);
            self.keep(Pair { real: real.ino, model: model.ino });
        }
    }

    fn tmpfile(&mut self) {
        let (dir, caller) = (self.dir(), self.caller());
        let real = self.fs.tmpfile(dir.real, 0o640, &caller);
        let model = self.model.tmpfile(dir.model, 0o640, &caller);
        if let Some((real, model)) = self.agree(format!("tmpfile in {dir:?}"), real, model) {
            self.same_attributes(&real, &model);
            self.keep(Pair { real: real.ino, model: model.ino });
        }
    }

    fn drop_held(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let number = self.rng.usize(0..self.held.len());
        let pair = self.held.swap_remove(number);
        self.note(format!("forget {pair:?}"));
        self.forget(pair);
        self.prune();
    }
}

/// If the name, its directory and its inode may each be wrong, several errors are correct, and each
/// of them is accepted.
pub(super) fn any_reason<T>(real: Result<T>, model: &Result<T>) -> Result<T> {
    match (real, model) {
        (Err(_), Err(error)) => Err(error.clone()),
        (real, _) => real,
    }
}

fn kind(new: &NewInode<'_>) -> String {
    match new {
        NewInode::Symlink(target) => format!("symlink of {} bytes", target.len()),
        other => format!("{other:?}"),
    }
}
