//! The members of one layer of a container image. They mean the same in any order.
//!
//! Whiteouts are applied when they come, to what lower layers have. The layer's own members wait
//! until all of it was read. Hard links come last: each is another name of the file that the layer
//! has under its target's name, else of the one that lower layers have there, also if the layer
//! removes that name. Members of the lowest layer need not wait.
//!
//! A whiteout removes nothing through a symbolic link. It is an error, unless the layer has a
//! directory in the place of the link, or removes that.

use std::collections::HashMap;

use super::members::{Change, Members};
use super::stream::Stream;
use crate::assembly::Assembly;
use crate::error::{Error, Result};
use crate::path::MemberPath;
use crate::store::KeepError;

/// Most bytes of members that wait.
const HELD_MAX: usize = 1 << 30;
/// Most hard links to hard links that are followed.
const HOPS: usize = 40;

/// Takes the members of a layer.
pub(super) struct Layer<'a> {
    assembly: &'a mut Assembly,
    /// No layer is below.
    is_lowest: bool,
    /// Members wait: an earlier one does, or there is something below.
    waits: bool,
    held: Vec<Held>,
    /// Whiteouts below what is no directory, and the directories that they want.
    aside: Vec<(Vec<u8>, MemberPath)>,
    bytes: usize,
}

/// A member that waits for the end of the layer.
struct Held {
    member: Vec<u8>,
    change: Change,
    /// What lower layers have under the name of a hard link's target.
    below: Option<usize>,
}

/// A hard link.
struct Link {
    member: Vec<u8>,
    path: MemberPath,
    target: MemberPath,
    below: Option<usize>,
    /// Its place among the members.
    index: usize,
}

impl<'a> Layer<'a> {
    /// Begins a layer over what is there.
    pub(super) fn new(assembly: &'a mut Assembly) -> Self {
        let is_lowest = assembly.begin_layer();
        Self {
            assembly,
            is_lowest,
            waits: !is_lowest,
            held: Vec::new(),
            aside: Vec::new(),
            bytes: 0,
        }
    }

    fn hold(&mut self, source: &str, member: &[u8], change: Change) -> Result<()> {
        self.count(source, member, change.bytes())?;
        let below = match &change {
            Change::Link(_, target) => self.assembly.find_below(target),
            _ => None,
        };
        self.held.push(Held { member: member.to_vec(), change, below });
        Ok(())
    }

    /// Counts a member that waits.
    fn count(&mut self, source: &str, member: &[u8], bytes: usize) -> Result<()> {
        self.bytes = self.bytes.saturating_add(bytes + member.len());
        let limit = self.assembly.limit();
        let count = self.held.len() + self.aside.len();
        if count as u64 >= limit || self.bytes > HELD_MAX {
            let why = format!("the layer has more than {limit} files, or too long names");
            return Err(Error::member(source, member, why));
        }
        Ok(())
    }

    /// Applies a whiteout to what lower layers have in a directory.
    fn remove(
        &mut self,
        source: &str,
        member: &[u8],
        directory: MemberPath,
        change: Change,
    ) -> Result<()> {
        if self.assembly.blocked(&directory).is_some() {
            self.count(source, member, change.bytes())?;
            self.aside.push((member.to_vec(), directory));
            return Ok(());
        }
        self.assembly.change(source, member, change)
    }

    /// Puts in what waits.
    ///
    /// # Errors
    /// A member cannot be put in.
    pub(super) fn finish(self, source: &str) -> Result<()> {
        let Self { assembly, held, aside, .. } = self;
        // Of the names that hard links have and lead to: the last member with that name.
        let mut last = HashMap::<MemberPath, Option<usize>>::new();
        for held in &held {
            if let Change::Link(path, target) = &held.change {
                last.extend([(path.clone(), None), (target.clone(), None)]);
            }
        }
        let mut links = Vec::new();
        for (index, Held { member, change, below }) in held.into_iter().enumerate() {
            let path = match &change {
                Change::Put { path, .. } | Change::Link(path, _) => Some(path),
                Change::Opaque(_) | Change::Whiteout(_) => None,
            };
            if let Some(last) = path.and_then(|path| last.get_mut(path)) {
                *last = Some(index);
            }
            match change {
                Change::Link(path, target) => {
                    links.push(Link { member, path, target, below, index });
                }
                change => assembly.change(source, &member, change)?,
            }
        }
        links.retain(|link| last.get(&link.path) == Some(&Some(link.index)));
        let by_name: HashMap<_, _> = links.iter().map(|link| (&link.path, link)).collect();
        for link in &links {
            let mut of = link;
            for _ in 0..HOPS {
                let Some(next) = by_name.get(&of.target) else { break };
                of = next;
            }
            let found = match last.get(&of.target) {
                Some(Some(_)) => assembly.find(&of.target),
                _ => of.below,
            };
            let linked = assembly.link_found(&link.path, &link.target, found);
            linked.map_err(|why| Error::member(source, &link.member, why))?;
        }
        for (member, directory) in aside {
            if let Some(why) = assembly.blocked(&directory) {
                return Err(Error::member(source, &member, why));
            }
        }
        Ok(())
    }
}

impl Members for Layer<'_> {
    fn excludes(&self, path: &MemberPath) -> bool {
        Members::excludes(&*self.assembly, path)
    }

    fn keep(&mut self, stream: &mut Stream, len: u64) -> Result<(u32, u64), KeepError> {
        Members::keep(self.assembly, stream, len)
    }

    fn change(&mut self, source: &str, member: &[u8], change: Change) -> Result<()> {
        match &change {
            Change::Opaque(_) | Change::Whiteout(_) if self.is_lowest => return Ok(()),
            Change::Opaque(path) => return self.remove(source, member, path.clone(), change),
            Change::Whiteout(path) => return self.remove(source, member, path.parent(), change),
            Change::Link(_, target) if self.assembly.find(target).is_none() => self.waits = true,
            Change::Put { .. } | Change::Link(..) => {}
        }
        match self.waits {
            true => self.hold(source, member, change),
            false => self.assembly.change(source, member, change),
        }
    }
}
