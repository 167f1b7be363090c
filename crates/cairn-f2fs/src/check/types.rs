//! The type of an inode: `i_mode`, the entries that lead to it, and what its contents show.
//!
//! Two of the three prove the type. Contents show a directory by the entry `.`, a link by its
//! target, and a file by inline data or pointers that fit the inode's form. Contents that are
//! possible with no type of `i_mode` are read as what they show, so that nothing below them is
//! missed; entries are compared after the walk.
//!
//! A file of one line may look as a link does. Where only these two are in question, nothing is
//! proved.

use cairn_check::{Finding, Place, Value};
use cairn_vfs::FileKind;

use super::context::{Context, Scratch};
use super::kinds;
use super::nodes::{self, NodeState};
use super::shape::Seen;
use crate::error::Result;
use crate::form::types::{self, Verdict};
pub(super) use crate::form::types::{stored, with};
use crate::format::units::Nid;

/// The block of an inode with the type that its contents show, if they are impossible with its own
/// one. The node is marked.
///
/// # Errors
/// The device's.
pub(super) fn proved(
    context: &Context,
    scratch: &mut Scratch,
    (ino, node): (Nid, &NodeState),
    image: &[u8],
) -> Result<Option<Vec<u8>>> {
    let found = types::proved(&mut Seen { context, scratch }, ino, image)?;
    Ok(found.map(|(_, other)| {
        node.mark(nodes::TYPED);
        other
    }))
}

/// After the walk: the inodes whose type contradicts their contents or their entries.
///
/// # Errors
/// The device's.
pub(super) fn check(context: &Context, scratch: &mut Scratch) -> Result<()> {
    for (ino, node) in context.nodes.iter().filter(|(nid, node)| node.ino() == *nid) {
        let entry = named(context, ino);
        let is_typed = node.is(nodes::TYPED);
        let differs = node.kind().is_some() && entry.is_some() && entry != node.kind();
        if !is_typed && !differs {
            continue;
        }
        let blocks = context.read(scratch, &[node.addr()])?;
        let Some(image) = blocks.iter().next() else { continue };
        let mode = stored(image);
        let seen = &mut Seen { context, scratch: &mut *scratch };
        let (verdict, contents) = types::judge(seen, (ino, image), entry)?;
        scratch.recycle(blocks);
        let kind = match verdict {
            // Then the entry is wrong.
            Verdict::Stored => continue,
            Verdict::Proved => &kinds::INODE_TYPE,
            Verdict::Doubt => &kinds::INODE_DOUBT,
        };
        let words = [("i_mode", mode), ("contents", contents), ("name", entry)]
            .map(|(what, kind)| format!("{what}: {}", word(kind)))
            .join(", ");
        context.add(Finding::new(kind, Place::inode(ino.get())).stored(Value::text(words)));
    }
    Ok(())
}

/// The type that an inode has for its first entry. The root and quota files have none.
pub(super) fn named(context: &Context, ino: Nid) -> Option<FileKind> {
    if ino == Nid::ROOT {
        return Some(FileKind::Directory);
    }
    let node = context.nodes.get(ino)?;
    if node.is(nodes::QUOTA) { Some(FileKind::Regular) } else { node.entry_kind() }
}

/// As [`types::shown`].
///
/// # Errors
/// The device's.
pub(super) fn shown(
    context: &Context,
    scratch: &mut Scratch,
    inode: (Nid, &[u8]),
    entry: Option<FileKind>,
) -> Result<Option<FileKind>> {
    types::shown(&mut Seen { context, scratch }, inode, entry)
}

fn word(kind: Option<FileKind>) -> &'static str {
    kind.map_or("unknown", FileKind::words)
}
