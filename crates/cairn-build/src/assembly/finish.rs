//! The finished tree: nodes in the order of their ids.

use super::{Assembly, Draft, NewKind, Shape};
use crate::node::{Kind, Node, NodeId};
use crate::tree::Tree;

impl Assembly {
    /// The finished tree: what is reached from the root, numbered.
    pub(crate) fn finish(self) -> Tree {
        let Self { mut drafts, stores, rules, unended, has_leftovers, has_unlabelled, .. } = self;
        let (ids, order) = numbered(&mut drafts);
        sort(&mut drafts, &order);
        drop(order);
        let id_of = |draft: usize| ids.get(draft).copied().flatten();
        // As large as a draft, so that a node takes its place.
        let nodes = drafts.into_iter().map(|Draft { mut metadata, shape, links }| {
            rules.date(&mut metadata);
            Node { metadata, kind: finished(shape, &id_of), links }
        });
        Tree { nodes: nodes.collect(), stores, unended, has_leftovers, has_unlabelled }
    }
}

/// The id of each draft that is reached from the root, and these drafts in the order of ids. Counts
/// their names.
fn numbered(drafts: &mut [Draft]) -> (Vec<Option<NodeId>>, Vec<u32>) {
    let mut ids: Vec<Option<NodeId>> = vec![None; drafts.len()];
    let (mut order, mut links, mut pending) = (vec![0], vec![1_u32], vec![0_u32]);
    if let Some(root) = ids.first_mut() {
        *root = Some(NodeId::ROOT);
    }
    while let Some(at) = pending.pop() {
        let Some(Draft { shape: Shape::Directory(entries), .. }) = drafts.get(at as usize) else {
            continue;
        };
        let mut below = Vec::new();
        for draft in entries.values() {
            let Some(id) = ids.get_mut(*draft) else { continue };
            match id {
                Some(known) => {
                    if let Some(count) = links.get_mut(known.index()) {
                        *count = count.saturating_add(1);
                    }
                }
                None => {
                    *id = Some(NodeId(u32::try_from(order.len()).unwrap_or(u32::MAX)));
                    let draft = u32::try_from(*draft).unwrap_or(u32::MAX);
                    order.push(draft);
                    links.push(1);
                    below.push(draft);
                }
            }
        }
        pending.extend(below.into_iter().rev());
    }
    for (draft, links) in order.iter().zip(links) {
        if let Some(draft) = drafts.get_mut(*draft as usize) {
            draft.links = links;
        }
    }
    (ids, order)
}

/// Puts the drafts in this order, and removes the others. Nothing is copied elsewhere: at this
/// point a build needs the most memory.
fn sort(drafts: &mut Vec<Draft>, order: &[u32]) {
    let all = u32::try_from(drafts.len()).unwrap_or(u32::MAX);
    // Where each draft is, and which one is at each place.
    let mut places: Vec<u32> = (0..all).collect();
    let mut held = places.clone();
    for (to, draft) in (0_u32..).zip(order) {
        let (Some(from), Some(other)) =
            (places.get(*draft as usize).copied(), held.get(to as usize).copied())
        else {
            continue;
        };
        drafts.swap(to as usize, from as usize);
        held.swap(to as usize, from as usize);
        places.swap(*draft as usize, other as usize);
    }
    drafts.truncate(order.len());
}

fn finished(shape: Shape, id_of: &dyn Fn(usize) -> Option<NodeId>) -> Kind {
    match shape {
        Shape::Directory(entries) => Kind::Directory(
            entries.into_iter().filter_map(|(name, node)| Some((name, id_of(node)?))).collect(),
        ),
        Shape::Other(kind) => match kind {
            NewKind::Directory => Kind::Directory(Vec::new()),
            NewKind::Regular(file) => Kind::Regular(file),
            NewKind::Symlink(target) => Kind::Symlink(target),
            NewKind::CharDevice(device) => Kind::CharDevice(device),
            NewKind::BlockDevice(device) => Kind::BlockDevice(device),
            NewKind::Fifo => Kind::Fifo,
            NewKind::Socket => Kind::Socket,
        },
    }
}
