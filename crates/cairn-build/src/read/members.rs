//! Where the members of an archive go: into an assembly, or through a queue to the thread that has
//! it.

use super::stream::Stream;
use crate::assembly::{Assembly, NamedList, NewKind};
use crate::error::{Error, Result};
use crate::node::Metadata;
use crate::path::MemberPath;
use crate::store::KeepError;

/// What a member changes.
pub(super) enum Change {
    /// It is put in.
    Put {
        path: MemberPath,
        metadata: Metadata,
        kind: NewKind,
        /// Access lists with names.
        named: Vec<(&'static [u8], Vec<u8>)>,
    },
    /// It is another name of a file.
    Link(MemberPath, MemberPath),
    /// It removes what lower layers have in a directory.
    Opaque(MemberPath),
    /// It removes what lower layers have there.
    Whiteout(MemberPath),
}

/// Takes the members of an archive.
pub(super) trait Members {
    /// True if a file at this path is left out.
    fn excludes(&self, path: &MemberPath) -> bool;

    /// Keeps the next `len` bytes of the archive. Returns the store and the offset in it.
    ///
    /// # Errors
    /// As [`Stream::keep`].
    fn keep(&mut self, stream: &mut Stream, len: u64) -> Result<(u32, u64), KeepError>;

    /// Takes a change. `member` is the member's name.
    ///
    /// # Errors
    /// The member cannot be put in.
    fn change(&mut self, source: &str, member: &[u8], change: Change) -> Result<()>;

    /// Takes that the archive may have been cut off.
    fn no_end(&mut self, _source: &str) {}
}

impl Members for Assembly {
    fn excludes(&self, path: &MemberPath) -> bool {
        self.rules.excludes(path, false)
    }

    fn keep(&mut self, stream: &mut Stream, len: u64) -> Result<(u32, u64), KeepError> {
        stream.keep(len, &mut self.stores)
    }

    fn no_end(&mut self, source: &str) {
        self.unended.push(source.to_owned());
    }

    fn change(&mut self, source: &str, member: &[u8], change: Change) -> Result<()> {
        let failed = |why: String| Error::member(source, member, why);
        match change {
            Change::Link(path, target) => self.link(&path, &target).map_err(failed),
            Change::Opaque(path) => {
                self.opaque(&path);
                Ok(())
            }
            Change::Whiteout(path) => {
                self.whiteout(&path);
                Ok(())
            }
            Change::Put { path, metadata, kind, named } => {
                let Some(node) = self.put(&path, metadata, kind).map_err(failed)? else {
                    return Ok(());
                };
                for (name, text) in named {
                    let (source, member) = (source.to_owned(), member.to_vec());
                    let list = NamedList { node, name, text, source, member };
                    self.wait_for_names(list).map_err(failed)?;
                }
                Ok(())
            }
        }
    }
}

impl Change {
    /// About how many bytes it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        let of = |path: &MemberPath| path.components().iter().map(|name| name.len() + 16).sum();
        let held: usize = match self {
            Self::Opaque(path) | Self::Whiteout(path) => of(path),
            Self::Link(path, target) => of(path) + of(target),
            Self::Put { path, metadata, kind, named } => {
                let xattrs = metadata.xattrs.iter();
                let xattrs: usize =
                    xattrs.map(|xattr| xattr.name.len() + xattr.value.len() + 32).sum();
                let named: usize = named.iter().map(|(_, text)| text.len() + 32).sum();
                let kind = match kind {
                    NewKind::Symlink(target) => target.len(),
                    NewKind::Regular(file) => file.data.len() * 32,
                    _ => 0,
                };
                of(path) + xattrs + named + kind
            }
        };
        held + size_of::<Self>()
    }
}
