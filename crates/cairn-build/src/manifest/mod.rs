//! Manifests: lists that state owners, modes, devices and attributes of what the sources gave, in
//! the forms of other tools. Which form a file has follows from its contents.
//!
//! There is a module for each form. Most forms give [`entry::Entry`]s, one for a name. Three say
//! something of the whole tree: `fs_config` must have a line for every file, `file_contexts` has
//! patterns, and the state of fakeroot names files of the host.
//!
//! Nothing of a file is trusted. A line that cannot be read is an error with its number.

mod apply;
mod capability;
mod device_table;
mod dump;
mod entry;
mod fakeroot;
mod file_contexts;
mod fs_config;
mod mtree;
mod pseudo;
mod words;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use cairn_base::names::Escaped;

use self::apply::{Apply, at_line};
use self::entry::{Changes, Entry};
use self::fakeroot::Files;
use self::file_contexts::FileContexts;
use self::fs_config::FsConfig;
use crate::assembly::Assembly;
use crate::error::{Error, Result};
use crate::node::LOST_AND_FOUND;
use crate::users::Users;

/// Most bytes of a manifest.
const FILE_MAX: u64 = 256 << 20;

/// A manifest.
pub(crate) struct Manifest {
    /// Its name.
    file: String,
    says: Says,
}

enum Says {
    Entries(Vec<Entry>),
    Config(FsConfig),
    Contexts(FileContexts),
    Files(Files),
}

/// The forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Mtree,
    Dump,
    DeviceTable,
    Pseudo,
    FsConfig,
    FileContexts,
    Fakeroot,
}

impl Manifest {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, has none of the forms, or a line cannot be read.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let failed = |error| Error::host(path, error);
        let mut text = Vec::new();
        let file = File::open(path).map_err(failed)?;
        file.take(FILE_MAX + 1).read_to_end(&mut text).map_err(failed)?;
        if text.len() as u64 > FILE_MAX {
            return Err(Error::source(path.escaped(), format!("has more than {FILE_MAX} bytes")));
        }
        Self::parse(path.escaped(), &text)
    }

    fn parse(file: String, text: &[u8]) -> Result<Self> {
        let Some(form) = recognise(text) else {
            if words::lines(text).next().is_none() {
                return Ok(Self { file, says: Says::Entries(Vec::new()) });
            }
            let why = "is none of the lists that are known: mtree, composefs-dump, device table, \
                pseudo-files of mksquashfs, fs_config, file_contexts, state of fakeroot";
            return Err(Error::source(file, why));
        };
        let says = match form {
            Form::Mtree => mtree::parse(text).map(Says::Entries),
            Form::Dump => dump::parse(text).map(Says::Entries),
            Form::DeviceTable => device_table::parse(text).map(Says::Entries),
            Form::Pseudo => pseudo::parse(text).map(Says::Entries),
            Form::FsConfig => FsConfig::parse(text).map(Says::Config),
            Form::FileContexts => FileContexts::parse(text).map(Says::Contexts),
            Form::Fakeroot => fakeroot::parse(text).map(Says::Files),
        };
        match says {
            Ok(says) => Ok(Self { file, says }),
            Err((line, why)) => Err(at_line(&file, line, why)),
        }
    }

    /// Gives the assembly what is said of files of the host, before it reads them.
    pub(crate) fn prepare(&mut self, assembly: &mut Assembly) {
        if let Says::Files(files) = &mut self.says {
            assembly.stated.files.extend(std::mem::take(files));
        }
    }

    /// Applies what it says to the sources that are there.
    ///
    /// # Errors
    /// An entry does not fit the sources.
    pub(crate) fn apply(self, assembly: &mut Assembly, users: &Users) -> Result<()> {
        let Self { file, says } = self;
        let mut apply = Apply { assembly, file: &file, users };
        match says {
            Says::Entries(entries) => apply.all(entries),
            Says::Config(config) => apply.config(&config),
            Says::Contexts(contexts) => apply.contexts(&contexts),
            Says::Files(_) => {
                let stated = &assembly.stated;
                if !stated.files.is_empty() && stated.matched == 0 {
                    tracing::warn!(
                        "{file}: names no file of the sources: it is of another copy of them"
                    );
                }
                Ok(())
            }
        }
    }
}

/// The form of a text, from its first lines. A device table and pseudo-files can begin alike.
fn recognise(text: &[u8]) -> Option<Form> {
    const MOST: usize = 1000;
    if text.starts_with(b"#mtree") {
        return Some(Form::Mtree);
    }
    let (_, first) = words::lines(text).next()?;
    let first = first.strip_suffix(b"\\").unwrap_or(first);
    if fakeroot::is_line(first) {
        Some(Form::Fakeroot)
    } else if dump::is_line(first) {
        Some(Form::Dump)
    } else if mtree::is_line(first) {
        Some(Form::Mtree)
    } else if words::lines(text).take(MOST).any(|(_, line)| device_table::is_line(line)) {
        Some(Form::DeviceTable)
    } else if pseudo::is_line(first) {
        Some(Form::Pseudo)
    } else if fs_config::is_line(first) {
        Some(Form::FsConfig)
    } else if file_contexts::is_line(first) {
        Some(Form::FileContexts)
    } else {
        None
    }
}

impl Apply<'_> {
    /// All names and their nodes; paths begin with the mount point, without a slash.
    fn paths(&self) -> Vec<(Vec<u8>, usize)> {
        let mut paths = Vec::new();
        let mount = self.assembly.rules.mount_point.clone();
        self.assembly.walk((Vec::new(), 0), &mut |path, node| {
            let slash: &[u8] = if mount.is_empty() || path.is_empty() { b"" } else { b"/" };
            if path != LOST_AND_FOUND {
                paths.push(([&mount, slash, path].concat(), node));
            }
        });
        paths
    }

    fn missing(&self, path: &[u8], what: &str) -> Error {
        let mount = match self.assembly.rules.mount_point.as_slice() {
            b"" => ", or the mount point if it names files with one",
            _ => "",
        };
        let path = path.escaped();
        Error::source(self.file, format!("no line is for /{path}: add {what}{mount}"))
    }

    fn config(&mut self, config: &FsConfig) -> Result<()> {
        for (path, node) in self.paths() {
            let set = config.find(&path).ok_or_else(|| self.missing(&path, "one"))?;
            self.change(node, set).map_err(|why| Error::member(self.file, &path, why))?;
        }
        Ok(())
    }

    fn contexts(&mut self, contexts: &FileContexts) -> Result<()> {
        for (path, node) in self.paths() {
            let whole = [b"/", path.as_slice()].concat();
            let Some(kind) = self.assembly.kind(node) else { continue };
            let found = contexts.find(&whole, kind);
            let found = found.ok_or_else(|| self.missing(&path, "one such as '/.* <<none>>'"))?;
            if let Some(label) = found {
                let mut set = Changes::default();
                set.set_xattr(file_contexts::NAME, label.to_vec());
                self.change(node, &set).map_err(|why| Error::member(self.file, &path, why))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
