//! Directories: entries in the inode, or in blocks of a hashed, multi-level table.
//!
//! Level `l` has `buckets(l)` buckets of 2 blocks (4 from level 31 on); a name is in the bucket of
//! its hash at one of the levels in use. Blocks of the table may be holes.
//!
//! Locking: callers hold `namespace` of the directory.

pub(crate) mod blocks;
pub(crate) mod cache;
pub(crate) mod edit;
pub(crate) mod lookup;
pub(crate) mod readdir;

use cairn_vfs::Name;

use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::dentry::{BadName, Dentry};
use crate::format::layout::Layout;
use crate::format::units::Nid;
use crate::inode::Inode;

/// The levels in use: never more than the format has.
fn depth(inode: &Inode) -> u32 {
    inode.state.read().record.current_depth.min(crate::format::dentry::MAX_DEPTH)
}

fn bad_name(directory: Nid, block: u64, bad: BadName) -> Error {
    bad_entry(directory, block, bad.slot, "the name is too long for its place", bad.name_len.into())
}

fn bad_entry(directory: Nid, block: u64, slot: usize, what: &'static str, value: u64) -> Error {
    // A block has 214 slots.
    let slot = u32::try_from(slot).unwrap_or(u32::MAX);
    Corrupt::Directory { ino: directory, block, slot, what, value }.into()
}

/// Checks an entry before its inode is loaded. Returns its name.
fn check_entry<'b>(
    directory: Nid,
    block: u64,
    entry: &Dentry<'b>,
    layout: &Layout,
) -> Result<Name<'b>> {
    let bad = |what, value| bad_entry(directory, block, entry.slot, what, value);
    if !layout.is_nid(entry.ino) || entry.ino < Nid::ROOT {
        return Err(bad("there is no such inode number", entry.ino.get().into()));
    }
    Name::check(entry.name).map_err(|wrong| bad(wrong.what(), wrong.value()))
}
