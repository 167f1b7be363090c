//! [`compare`]: what differs between two trees, whatever they come from.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::Result;
use crate::node::{Kind, LOST_AND_FOUND, Node, NodeId, RegularFile, SELINUX, Xattr};
use crate::tree::Tree;

/// Bytes compared at a time.
const CHUNK: u64 = 1 << 18;

/// A path that differs, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The path, without a leading slash; empty for the root.
    pub path: Vec<u8>,
    /// What differs.
    pub what: Vec<Change>,
}

/// How a path differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Only the first tree has it.
    OnlyInFirst,
    /// Only the second tree has it.
    OnlyInSecond,
    /// It is of another kind.
    Kind,
    /// Bytes of a file, the target of a symbolic link, or a device number.
    Contents,
    /// Permission bits.
    Mode,
    /// Owner or group.
    Owner,
    /// Modification time.
    Time,
    /// Extended attributes.
    Xattrs,
    /// Which names share an inode.
    Links,
}

impl Change {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::OnlyInFirst => "only in the first",
            Self::OnlyInSecond => "only in the second",
            Self::Kind => "kind",
            Self::Contents => "contents",
            Self::Mode => "mode",
            Self::Owner => "owner",
            Self::Time => "time",
            Self::Xattrs => "attributes",
            Self::Links => "hard links",
        }
    }
}

/// All paths of a tree.
fn paths(tree: &Tree) -> Result<BTreeMap<Vec<u8>, NodeId>> {
    let mut all = BTreeMap::new();
    tree.each_name(&mut |path, id, _| {
        all.insert(path.to_vec(), id);
        Ok(())
    })?;
    Ok(all)
}

/// What counts as a difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompareOptions {
    /// Modification times count.
    pub times: bool,
    /// Files of the same size and modification time are not read: they count as equal.
    pub quick: bool,
}

/// Passes what differs to `take`, in the order of paths. Access and change times do not count, nor
/// do where files have holes, and an empty `lost+found` at the top as mkfs makes it. A label of
/// SELinux does not count where the other side is a file of the host. Returns the number of
/// differing paths.
///
/// # Errors
/// A file of one of the trees cannot be read.
pub fn compare(
    first: &Tree,
    second: &Tree,
    options: CompareOptions,
    take: &mut dyn FnMut(&Difference),
) -> Result<u64> {
    let (ours, theirs) = (paths(first)?, paths(second)?);
    let all: BTreeSet<&Vec<u8>> = ours.keys().chain(theirs.keys()).collect();
    // The first path of a node stands for it: names share an inode if it is the same on both sides.
    let mut groups = (BTreeMap::new(), BTreeMap::new());
    let (mut count, mut hidden): (u64, Option<Vec<u8>>) = (0, None);
    for path in all {
        let (left, right) = (ours.get(path), theirs.get(path));
        if hidden.as_ref().is_some_and(|above| path.starts_with(above)) {
            continue;
        }
        if path.as_slice() == LOST_AND_FOUND && is_of_mkfs(first, left) && is_of_mkfs(second, right)
        {
            continue;
        }
        let what = match (left, right) {
            (Some(left), Some(right)) => {
                let group_left = groups.0.entry(*left).or_insert(path).as_slice();
                let group_right = groups.1.entry(*right).or_insert(path).as_slice();
                let same_links = group_left == group_right;
                let nodes = first.node(*left).zip(second.node(*right));
                let Some((left, right)) = nodes else { continue };
                let mut what = differing((first, left), (second, right), options)?;
                if !same_links {
                    what.push(Change::Links);
                }
                what
            }
            (Some(_), None) => vec![Change::OnlyInFirst],
            _ => vec![Change::OnlyInSecond],
        };
        if what.is_empty() {
            continue;
        }
        if matches!(what.as_slice(), [Change::OnlyInFirst | Change::OnlyInSecond]) {
            hidden = Some([path.as_slice(), b"/"].concat());
        }
        count += 1;
        take(&Difference { path: path.clone(), what });
    }
    Ok(count)
}

/// True if nothing is there, or a directory as mkfs makes it.
fn is_of_mkfs(tree: &Tree, id: Option<&NodeId>) -> bool {
    let node = id.and_then(|id| tree.node(*id));
    node.is_none_or(|node| {
        let is_empty = matches!(&node.kind, Kind::Directory(entries) if entries.is_empty());
        is_empty && node.metadata.is_of_mkfs()
    })
}

/// True if both have the same attributes. The host's labels of SELinux are not taken, so a tree
/// with files of the host does not say what their labels are.
fn same_xattrs((first, left): (&Tree, &Node), (second, right): (&Tree, &Node)) -> bool {
    let label = |xattr: &&Xattr| &*xattr.name == SELINUX;
    let (ours, theirs) = (&left.metadata.xattrs, &right.metadata.xattrs);
    let is_unknown = |tree: &Tree, xattrs: &[Xattr]| {
        tree.has_unlabelled && !xattrs.iter().any(|one| label(&one))
    };
    if !is_unknown(first, ours) && !is_unknown(second, theirs) {
        return ours == theirs;
    }
    ours.iter().filter(|one| !label(one)).eq(theirs.iter().filter(|one| !label(one)))
}

fn differing(
    (first, left): (&Tree, &Node),
    (second, right): (&Tree, &Node),
    options: CompareOptions,
) -> Result<Vec<Change>> {
    if left.kind.file_kind() != right.kind.file_kind() {
        return Ok(vec![Change::Kind]);
    }
    let (ours, theirs) = (&left.metadata, &right.metadata);
    let is_link = matches!(left.kind, Kind::Symlink(_));
    let same_contents = match (&left.kind, &right.kind) {
        (Kind::Regular(left), Kind::Regular(right))
            if options.quick && ours.mtime == theirs.mtime =>
        {
            left.size == right.size
        }
        (Kind::Regular(left), Kind::Regular(right)) => same((first, left), (second, right))?,
        (Kind::Directory(_), _) => true,
        (left, right) => left == right,
    };
    let facts = [
        (same_contents, Change::Contents),
        (is_link || ours.permissions == theirs.permissions, Change::Mode),
        ((ours.uid, ours.gid) == (theirs.uid, theirs.gid), Change::Owner),
        (!options.times || ours.mtime == theirs.mtime, Change::Time),
        (same_xattrs((first, left), (second, right)), Change::Xattrs),
    ];
    Ok(facts.into_iter().filter(|(same, _)| !same).map(|(_, change)| change).collect())
}

/// Reads a file; holes are zeros.
struct Reader<'a> {
    tree: &'a Tree,
    file: &'a RegularFile,
    buffer: Vec<u8>,
}

impl Reader<'_> {
    fn piece(&mut self, at: u64, len: u64) -> Result<&[u8]> {
        let end = at.saturating_add(len);
        self.buffer.clear();
        self.buffer.resize(usize::try_from(len).unwrap_or(0), 0);
        let from = self.file.data.partition_point(|range| range.end <= at);
        for range in self.file.data.iter().skip(from).take_while(|range| range.start < end) {
            let (start, stop) = (range.start.max(at), range.end.min(end));
            let places = usize::try_from(start - at).ok().zip(usize::try_from(stop - at).ok());
            if let Some(part) = places.and_then(|(from, to)| self.buffer.get_mut(from..to)) {
                self.tree.read(self.file, start, part)?;
            }
        }
        Ok(&self.buffer)
    }
}

/// True if both files have the same bytes. Where both have holes nothing is read.
fn same(
    (first, left): (&Tree, &RegularFile),
    (second, right): (&Tree, &RegularFile),
) -> Result<bool> {
    if left.size != right.size {
        return Ok(false);
    }
    let mut ours = Reader { tree: first, file: left, buffer: Vec::new() };
    let mut theirs = Reader { tree: second, file: right, buffer: Vec::new() };
    let next_data = |file: &RegularFile, at: u64| {
        let next = file.data.get(file.data.partition_point(|range| range.end <= at));
        next.map_or(file.size, |range| range.start.max(at))
    };
    let mut at = 0;
    loop {
        at = next_data(left, at).min(next_data(right, at));
        let len = left.size.saturating_sub(at).min(CHUNK);
        if len == 0 {
            return Ok(true);
        }
        if ours.piece(at, len)? != theirs.piece(at, len)? {
            return Ok(false);
        }
        at += len;
    }
}
