//! Listings of directories, also while they change.

use std::collections::{BTreeMap, BTreeSet};

use cairn_base::Ino;
use cairn_vfs::{Caller, Error, FileKind, FileSystem, NewInode};

use super::names::any_reason;
use super::{Duel, Pair};

type Names = BTreeMap<Vec<u8>, Option<FileKind>>;

fn list(fs: &dyn FileSystem, dir: Ino) -> Result<Names, Error> {
    let mut names = Names::new();
    let mut twice = None;
    fs.readdir(dir, 0, &mut |entry| {
        if names.insert(entry.name.to_vec(), entry.kind).is_some() {
            twice = Some(entry.name);
        }
        true
    })?;
    assert_eq!(twice, None, "a name is given twice");
    Ok(names)
}

impl Duel<'_> {
    pub(super) fn list(&mut self) {
        let pair = if self.rng.u8(0..10) == 0 { self.target() } else { self.dir() };
        let (real, model) = (list(&*self.fs, pair.real), list(&self.model, pair.model));
        self.same(format!("readdir {pair:?}"), real, model);
    }

    /// Lists in pieces with changes between them: an unchanged entry is listed exactly once.
    pub(super) fn list_while_changing(&mut self) {
        let dir = self.dir();
        let before: BTreeSet<Vec<u8>> = list(&*self.fs, dir.real).unwrap().into_keys().collect();
        self.note(format!("readdir of {dir:?} while it changes"));
        let (mut seen, mut position, mut touched) = (Vec::new(), 0, BTreeSet::new());
        loop {
            let (step, mut count) = (self.rng.usize(1..5), 0);
            let read = self.fs.readdir(dir.real, position, &mut |entry| {
                position = entry.next;
                seen.push(entry.name.into_bytes());
                count += 1;
                count < step
            });
            read.unwrap_or_else(|error| self.fail(&error.to_string()));
            if count == 0 {
                break;
            }
            let name = self.name();
            self.toggle(dir, &name);
            touched.insert(name);
            if seen.len() > before.len() + touched.len() + 8 {
                self.fail("the listing does not end");
            }
        }
        for name in &before {
            let times = seen.iter().filter(|seen| *seen == name).count();
            if times != 1 && !touched.contains(name) {
                self.fail(&format!(
                    "{} was there all the time and is given {times} times",
                    name.escape_ascii()
                ));
            }
        }
        if let Some(name) =
            seen.iter().find(|name| !before.contains(*name) && !touched.contains(*name))
        {
            self.fail(&format!("{} was never there", name.escape_ascii()));
        }
    }

    /// Makes the name if it is not there, removes it if it is a file.
    fn toggle(&mut self, dir: Pair, name: &[u8]) {
        let at = name.escape_ascii().to_string();
        let (real, model) = (self.fs.unlink(dir.real, name), self.model.unlink(dir.model, name));
        let gone = matches!(&model, Err(error) if error.errno() == 2);
        self.same(format!("unlink {at} in {dir:?}"), any_reason(real, &model), model);
        if gone {
            let real = self.fs.create(dir.real, name, NewInode::Regular, 0o644, &Caller::ROOT);
            let model = self.model.create(dir.model, name, NewInode::Regular, 0o644, &Caller::ROOT);
            if let Some((real, model)) =
                self.agree(format!("create {at} in {dir:?}"), any_reason(real, &model), model)
            {
                self.forget(Pair { real: real.ino, model: model.ino });
            }
        }
    }
}
