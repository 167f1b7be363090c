//! [`names`]: how the directories of a tree name its nodes.

use cairn_base::names::Escaped;

use super::error::TreeError;
use super::source::{Kind, Source};
use crate::name::NAME_MAX;

/// The id of the root.
pub const ROOT: u32 = 0;
const NO_PARENT: u32 = u32::MAX;

/// How a node is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// Links: the names; of a directory also `.`, and the `..` of those in it.
    pub links: u32,
    /// The directory with its first name. The root is in itself.
    pub parent: u32,
    /// The index of that name in the directory.
    pub entry: u32,
}

/// How each node is named.
///
/// # Errors
/// An entry is no name, is out of order, or has no node; a directory has two names or lies in one
/// of a larger id; a node has no name; the root is no directory.
pub fn names(source: &dyn Source) -> Result<Vec<Named>, TreeError> {
    let none = Named { links: 0, parent: NO_PARENT, entry: 0 };
    let mut named = vec![none; source.count() as usize];
    match named.first_mut() {
        Some(root) if is_directory(source, ROOT) => {
            *root = Named { links: 2, parent: ROOT, entry: 0 };
        }
        _ => return Err(TreeError::node(source.path(ROOT), "the root is not a directory")),
    }
    for id in 0..source.count() {
        entries(source, id, &mut named)?;
    }
    match (0..).zip(&named).find(|(_, named)| named.links == 0) {
        Some((id, _)) => Err(TreeError::node(source.path(id), "the node has no name")),
        None => Ok(named),
    }
}

fn is_directory(source: &dyn Source, id: u32) -> bool {
    matches!(source.node(id).kind, Kind::Directory { .. })
}

/// Checks the entries of a directory and counts their links.
fn entries(source: &dyn Source, id: u32, named: &mut [Named]) -> Result<(), TreeError> {
    let Kind::Directory { entries } = source.node(id).kind else { return Ok(()) };
    let refuse = |id: u32, why: String| Err(TreeError::node(source.path(id), why));
    let mut before: &[u8] = b"";
    for entry in 0..entries {
        let (name, target) = source.entry(id, entry);
        let is_dot = name == b"." || name == b"..";
        if name.len() > NAME_MAX || is_dot || name.contains(&b'/') || name.contains(&0) {
            return refuse(id, format!("{} is not a name", name.escaped()));
        }
        if name <= before {
            return refuse(id, format!("entry {} is empty or out of order", name.escaped()));
        }
        before = name;
        let Some(known) = named.get_mut(target as usize) else {
            return refuse(id, format!("entry {} has no node", name.escaped()));
        };
        let directory = is_directory(source, target);
        if directory && (target <= id || known.parent != NO_PARENT) {
            let why = "a directory has one name, in a directory of a smaller id";
            return refuse(target, why.into());
        }
        if known.parent == NO_PARENT {
            (known.parent, known.entry) = (id, entry);
        }
        known.links += if directory { 2 } else { 1 };
        if directory && let Some(above) = named.get_mut(id as usize) {
            above.links += 1;
        }
    }
    Ok(())
}

/// The node of this name in a directory.
#[must_use]
pub fn find(source: &dyn Source, directory: u32, name: &[u8]) -> Option<u32> {
    let Kind::Directory { entries } = source.node(directory).kind else { return None };
    let (mut from, mut to) = (0, entries);
    while from < to {
        let middle = from + (to - from) / 2;
        let (known, id) = source.entry(directory, middle);
        match known.cmp(name) {
            std::cmp::Ordering::Equal => return Some(id),
            std::cmp::Ordering::Less => from = middle + 1,
            std::cmp::Ordering::Greater => to = middle,
        }
    }
    None
}
