//! Owners, permissions, times, flags, extended attributes and access control lists.

use cairn_vfs::acl::{self, Acl, Entry, Tag};
use cairn_vfs::{FileKind, FileSystem, InodeFlags, SetAttributes, SetTime, Timestamp, XattrMode};

use super::names::any_reason;
use super::{Duel, Pair};

const NAMES: &[&[u8]] = &[
    b"user.a",
    b"user.b",
    b"trusted.t",
    b"security.s",
    b"user.",
    b"nonsense.x",
    acl::ACCESS,
    acl::DEFAULT,
];

impl Duel<'_> {
    pub(super) fn attributes_step(&mut self) {
        let pair = self.target();
        match self.rng.u32(0..100) {
            0..30 => self.setattr(pair),
            30..36 => self.chattr(pair),
            36..65 => self.setxattr(pair),
            65..75 => self.removexattr(pair),
            75..85 => self.getxattr(pair),
            85..92 => self.listxattr(pair),
            _ => self.getattr(pair),
        }
    }

    fn getattr(&mut self, pair: Pair) {
        let (real, model) = (self.fs.getattr(pair.real), self.model.getattr(pair.model));
        if let Some((real, model)) = self.agree(format!("getattr {pair:?}"), real, model) {
            self.same_attributes(&real, &model);
        }
    }

    fn setattr(&mut self, pair: Pair) {
        // Programs lose their privileges.
        let is_file =
            self.model.getattr(pair.model).is_ok_and(|found| found.kind == FileKind::Regular);
        let kill_privileges = is_file && self.rng.u8(0..4) == 0;
        let mut set = SetAttributes { kill_privileges, ..SetAttributes::default() };
        let time = Timestamp {
            seconds: self.rng.i64(0..1 << 33),
            nanoseconds: self.rng.u32(0..1_000_000_000),
        };
        match self.rng.u32(0..4) {
            0 => set.permissions = Some(self.rng.u32(0..0o10000)),
            1 => (set.uid, set.gid) = (Some(self.rng.u32(0..100_000)), Some(self.rng.u32(0..5))),
            2 => set.mtime = Some(SetTime::To(time)),
            _ => (set.atime, set.mtime) = (Some(SetTime::Now), Some(SetTime::To(time))),
        }
        let (real, model) =
            (self.fs.setattr(pair.real, &set), self.model.setattr(pair.model, &set));
        let Some((real, model)) = self.agree(format!("setattr {pair:?} {set:?}"), real, model)
        else {
            return;
        };
        self.same_attributes(&real, &model);
        if set.mtime.is_some() && real.mtime != model.mtime {
            self.fail(&format!("mtime {:?} is not {:?}", real.mtime, model.mtime));
        }
    }

    fn chattr(&mut self, pair: Pair) {
        let flags = match self.rng.u32(0..12) {
            0 => InodeFlags::IMMUTABLE,
            1 => InodeFlags::APPEND,
            2 => InodeFlags::NODUMP,
            3 => InodeFlags::NOATIME,
            _ => InodeFlags::empty(),
        };
        let set = SetAttributes { flags: Some(flags), ..SetAttributes::default() };
        let (real, model) =
            (self.fs.setattr(pair.real, &set), self.model.setattr(pair.model, &set));
        self.agree(format!("chattr {pair:?} {flags:?}"), real, model);
    }

    fn xattr_name(&mut self) -> &'static [u8] {
        NAMES[self.rng.usize(0..NAMES.len())]
    }

    /// A list with up to three named entries, or bytes that are no list.
    fn list_value(&mut self) -> Vec<u8> {
        if self.rng.u8(0..10) == 0 {
            return vec![2, 0, 0, 0, 1];
        }
        let mut entry = |tag| Entry { tag, permissions: self.rng.u8(0..8) };
        let mut entries = vec![entry(Tag::UserObj), entry(Tag::GroupObj), entry(Tag::Other)];
        if entry(Tag::Other).permissions > 2 {
            entries.extend([entry(Tag::User(1000)), entry(Tag::Group(77)), entry(Tag::Mask)]);
        }
        Acl::new(entries).unwrap().to_xattr()
    }

    fn setxattr(&mut self, pair: Pair) {
        let name = self.xattr_name();
        let value = if name == acl::ACCESS || name == acl::DEFAULT {
            self.list_value()
        } else {
            let len = [0, 1, 7, 60, 130][self.rng.usize(0..5)];
            (0..len).map(|_| self.rng.u8(..)).collect()
        };
        let mode = [XattrMode::Set, XattrMode::Set, XattrMode::Create, XattrMode::Replace]
            [self.rng.usize(0..4)];
        let what =
            format!("setxattr {pair:?} {} {} bytes {mode:?}", name.escape_ascii(), value.len());
        let real = self.fs.setxattr(pair.real, name, &value, mode);
        let model = self.model.setxattr(pair.model, name, &value, mode);
        self.same(what, any_reason(real, &model), model);
    }

    fn removexattr(&mut self, pair: Pair) {
        let name = self.xattr_name();
        let real = self.fs.removexattr(pair.real, name);
        let model = self.model.removexattr(pair.model, name);
        self.same(
            format!("removexattr {pair:?} {}", name.escape_ascii()),
            any_reason(real, &model),
            model,
        );
    }

    fn getxattr(&mut self, pair: Pair) {
        let name = self.xattr_name();
        let real = self.fs.getxattr(pair.real, name);
        let model = self.model.getxattr(pair.model, name);
        self.same(format!("getxattr {pair:?} {}", name.escape_ascii()), real, model);
    }

    fn listxattr(&mut self, pair: Pair) {
        let sorted = |names: cairn_vfs::Result<Vec<Vec<u8>>>| {
            names.map(|mut names| {
                names.sort();
                names
            })
        };
        let (real, model) = (self.fs.listxattr(pair.real), self.model.listxattr(pair.model));
        self.same(format!("listxattr {pair:?}"), sorted(real), sorted(model));
    }
}
