//! The tree of the empty server: names in hash tables, attributes, and contents if they are kept.
//!
//! A node is its number in a list; numbers are not used twice. A node without a name goes when the
//! kernel forgets it.

use std::collections::{BTreeMap, HashMap};

use rustix::io::Errno;

use crate::wire::abi::Attr;

/// The root's number.
const ROOT: u64 = 1;
pub(super) const KIND: u32 = 0o170_000;
pub(super) const DIRECTORY: u32 = 0o040_000;
/// Contents are kept in pieces of this many bytes.
const PIECE: u64 = 1 << 20;

/// The entries of a directory.
#[derive(Default)]
pub(super) struct Directory {
    /// The place and the node of each name.
    names: HashMap<Box<[u8]>, (u64, u64)>,
    /// The names by their place: a listing goes on where it was, whatever was removed meanwhile.
    places: BTreeMap<u64, (Box<[u8]>, u64)>,
    next: u64,
}

pub(super) struct Node {
    pub(super) attr: Attr,
    /// References of the kernel.
    known: u64,
    /// The entries of a directory.
    entries: Option<Box<Directory>>,
    /// The target of a symbolic link.
    pub(super) target: Box<[u8]>,
    /// Pieces of what was written, by their number. A piece is as long as what was written to it.
    contents: BTreeMap<u64, Vec<u8>>,
}

pub(super) struct Tree {
    nodes: Vec<Option<Node>>,
}

impl Tree {
    pub(super) fn new(root: Attr) -> Self {
        let mut tree = Self { nodes: vec![None] };
        tree.add(Attr { nlink: 2, ..root }, b"");
        tree
    }

    /// Adds a node without a name.
    pub(super) fn add(&mut self, attr: Attr, target: &[u8]) -> u64 {
        let number = self.nodes.len() as u64;
        let entries = (attr.mode & KIND == DIRECTORY).then(Box::default);
        let attr = Attr { ino: number, blksize: 4096, ..attr };
        let (target, contents) = (target.into(), BTreeMap::new());
        self.nodes.push(Some(Node { attr, known: 0, entries, target, contents }));
        number
    }

    pub(super) fn node(&mut self, number: u64) -> Result<&mut Node, Errno> {
        let place = usize::try_from(number).map_err(|_| Errno::STALE)?;
        self.nodes.get_mut(place).and_then(Option::as_mut).ok_or(Errno::STALE)
    }

    /// Keeps what was written.
    pub(super) fn keep(&mut self, number: u64, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let contents = &mut self.node(number)?.contents;
        let (mut offset, mut data) = (offset, data);
        while !data.is_empty() {
            let start = (offset % PIECE) as usize;
            let (now, later) = data.split_at(data.len().min(PIECE as usize - start));
            let piece = contents.entry(offset / PIECE).or_default();
            let len = piece.len();
            piece.resize(len.max(start), 0);
            let over = now.len().min(piece.len() - start);
            piece[start..start + over].copy_from_slice(&now[..over]);
            piece.extend_from_slice(&now[over..]);
            (offset, data) = (offset + now.len() as u64, later);
        }
        Ok(())
    }

    /// Kept bytes of a node, in order. What was not written is zero.
    pub(super) fn data(&self, number: u64, offset: u64, len: usize) -> Vec<&[u8]> {
        static ZEROS: [u8; PIECE as usize] = [0; PIECE as usize];
        let node = self.nodes.get(number as usize).and_then(Option::as_ref);
        let (mut offset, mut left, mut pieces) = (offset, len, Vec::new());
        while left > 0 {
            let start = (offset % PIECE) as usize;
            let now = left.min(PIECE as usize - start);
            let piece = node.and_then(|node| node.contents.get(&(offset / PIECE)));
            let written = piece.and_then(|piece| piece.get(start..)).unwrap_or_default();
            let written = &written[..now.min(written.len())];
            pieces.push(written);
            pieces.push(&ZEROS[written.len()..now]);
            (offset, left) = (offset + now as u64, left - now);
        }
        pieces
    }

    fn directory(&mut self, number: u64) -> Result<&mut Directory, Errno> {
        self.node(number)?.entries.as_deref_mut().ok_or(Errno::NOTDIR)
    }

    pub(super) fn find(&mut self, parent: u64, name: &[u8]) -> Result<Option<u64>, Errno> {
        Ok(self.directory(parent)?.names.get(name).map(|(_, node)| *node))
    }

    /// Counts a reference that the kernel gets, and returns the attributes.
    pub(super) fn refer(&mut self, number: u64) -> Result<Attr, Errno> {
        let node = self.node(number)?;
        node.known += 1;
        Ok(node.attr)
    }

    pub(super) fn forget(&mut self, number: u64, count: u64) {
        if let Ok(node) = self.node(number) {
            node.known = node.known.saturating_sub(count);
            self.drop_unused(number);
        }
    }

    /// Gives a node a name.
    pub(super) fn link(&mut self, parent: u64, name: &[u8], number: u64) -> Result<(), Errno> {
        let directory = self.directory(parent)?;
        if directory.names.contains_key(name) {
            return Err(Errno::EXIST);
        }
        directory.next += 1;
        directory.names.insert(name.into(), (directory.next, number));
        directory.places.insert(directory.next, (name.into(), number));
        Ok(())
    }

    /// Takes a name away. The node keeps its number of links.
    fn take(&mut self, parent: u64, name: &[u8]) -> Result<u64, Errno> {
        let directory = self.directory(parent)?;
        let (place, number) = directory.names.remove(name).ok_or(Errno::NOENT)?;
        directory.places.remove(&place);
        Ok(number)
    }

    /// Removes a name, and the node with its last name.
    pub(super) fn unlink(&mut self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        let number = self.find(parent, name)?.ok_or(Errno::NOENT)?;
        let node = self.node(number)?;
        let is_directory = node.entries.is_some();
        if node.entries.as_ref().is_some_and(|entries| !entries.names.is_empty()) {
            return Err(Errno::NOTEMPTY);
        }
        let left = if is_directory { 0 } else { node.attr.nlink.saturating_sub(1) };
        node.attr.nlink = left;
        self.take(parent, name)?;
        self.drop_unused(number);
        Ok(())
    }

    pub(super) fn rename(
        &mut self,
        (from, old): (u64, &[u8]),
        (to, new): (u64, &[u8]),
    ) -> Result<(), Errno> {
        let number = self.find(from, old)?.ok_or(Errno::NOENT)?;
        match self.find(to, new)? {
            Some(target) if target == number => return Ok(()),
            Some(_) => self.unlink(to, new)?,
            None => {}
        }
        self.take(from, old)?;
        self.link(to, new, number)
    }

    fn drop_unused(&mut self, number: u64) {
        if number != ROOT
            && self.node(number).is_ok_and(|node| node.known == 0 && node.attr.nlink == 0)
        {
            self.nodes[number as usize] = None;
        }
    }

    /// Calls `emit` with the place, the name and the attributes of each entry behind a place, until
    /// it returns false.
    pub(super) fn list(
        &mut self,
        number: u64,
        behind: u64,
        mut emit: impl FnMut(u64, &[u8], &Attr) -> bool,
    ) -> Result<(), Errno> {
        self.directory(number)?;
        let nodes = &self.nodes;
        let node = |number: u64| nodes.get(number as usize).and_then(Option::as_ref);
        let Some(entries) = node(number).and_then(|node| node.entries.as_deref()) else {
            return Ok(());
        };
        for (place, (name, number)) in entries.places.range(behind + 1..) {
            if let Some(node) = node(*number)
                && !emit(*place, name, &node.attr)
            {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Attr = Attr { mode: 0o100_644, nlink: 1, ..EMPTY };
    const EMPTY: Attr = Attr {
        ino: 0,
        size: 0,
        blocks: 0,
        atime: 0,
        mtime: 0,
        ctime: 0,
        atimensec: 0,
        mtimensec: 0,
        ctimensec: 0,
        mode: DIRECTORY,
        nlink: 2,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    };

    fn names(tree: &mut Tree, behind: u64) -> Vec<Vec<u8>> {
        let mut names = Vec::new();
        tree.list(ROOT, behind, |_, name, _| {
            names.push(name.to_vec());
            true
        })
        .unwrap();
        names
    }

    #[test]
    fn a_listing_goes_on_after_removals() {
        let mut tree = Tree::new(EMPTY);
        for name in [b"a", b"b", b"c", b"d"] {
            let node = tree.add(FILE, b"");
            tree.link(ROOT, name, node).unwrap();
        }
        tree.unlink(ROOT, b"a").unwrap();
        tree.unlink(ROOT, b"b").unwrap();
        assert_eq!(names(&mut tree, 2), [b"c", b"d"]);
        tree.rename((ROOT, b"d"), (ROOT, b"c")).unwrap();
        assert_eq!(names(&mut tree, 0), [b"c"]);
    }

    #[test]
    fn kept_contents_come_back_and_gaps_are_zero() {
        let mut tree = Tree::new(EMPTY);
        let node = tree.add(FILE, b"");
        tree.keep(node, 3, b"abc").unwrap();
        tree.keep(node, 5, b"de").unwrap();
        tree.keep(node, PIECE - 1, b"xy").unwrap();
        assert_eq!(tree.data(node, 1, 8).concat(), b"\0\0abde\0\0"[..8]);
        assert_eq!(tree.data(node, PIECE - 2, 5).concat(), b"\0xy\0\0");
        assert_eq!(tree.data(node, 5 * PIECE - 1, 2).concat(), b"\0\0");
    }

    #[test]
    fn a_node_lives_as_long_as_a_name_or_the_kernel_refers_to_it() {
        let mut tree = Tree::new(EMPTY);
        let node = tree.add(FILE, b"");
        tree.link(ROOT, b"a", node).unwrap();
        assert_eq!(tree.link(ROOT, b"a", node), Err(Errno::EXIST));
        tree.refer(node).unwrap();
        tree.unlink(ROOT, b"a").unwrap();
        assert!(tree.node(node).is_ok());
        tree.forget(node, 1);
        assert_eq!(tree.node(node).err(), Some(Errno::STALE));
        assert_eq!(tree.unlink(ROOT, b"a"), Err(Errno::NOENT));
    }
}
