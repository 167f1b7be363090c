//! The form of an inode against its body: see [`crate::form::shape`].

use cairn_check::{Finding, Place};

use super::context::{Context, Scratch};
use super::{kinds, owners};
use crate::error::Result;
use crate::form::Around;
pub(super) use crate::form::shape::set;
use crate::form::shape::{self, Change};
use crate::format::layout::Layout;
use crate::format::units::{BlockAddr, Nid};
use crate::format::{Inode, Summary};

/// What a check sees around an inode.
pub(super) struct Seen<'s> {
    pub(super) context: &'s Context,
    pub(super) scratch: &'s mut Scratch,
}

impl Around for Seen<'_> {
    fn layout(&self) -> &Layout {
        &self.context.layout
    }

    fn owner(&mut self, addr: BlockAddr) -> Result<Option<(bool, Summary)>> {
        owners::stored(self.context, self.scratch, addr)
    }

    fn block(&mut self, addr: BlockAddr) -> Result<Option<Vec<u8>>> {
        self.context.with_block(self.scratch, addr, <[u8]>::to_vec)
    }

    fn root(&mut self) -> Result<Option<Inode>> {
        let Some(root) = self.context.nodes.inode(Nid::ROOT) else { return Ok(None) };
        let image = self.block(root.addr())?;
        let features = self.layout().features;
        Ok(image.and_then(|image| Inode::decode(&image, Nid::ROOT, features).ok()))
    }
}

/// The block of an inode with the form that its body proves, if it has another one. That is a
/// finding.
///
/// # Errors
/// The device's.
pub(super) fn proved(
    context: &Context,
    scratch: &mut Scratch,
    ino: Nid,
    image: &[u8],
) -> Result<Option<Vec<u8>>> {
    let found = shape::proved(&mut Seen { context, scratch }, ino, image)?;
    Ok(found.map(|(change, other)| {
        add(context, ino, change);
        other
    }))
}

/// After the nodes were followed: as [`shape::of_nodes`]. That is a finding.
///
/// # Errors
/// The device's.
pub(super) fn of_nodes(
    context: &Context,
    scratch: &mut Scratch,
    (ino, record, image): (Nid, &Inode, &[u8]),
    end: u64,
) -> Result<()> {
    let found = shape::of_nodes(&mut Seen { context, scratch }, (ino, record, image), end)?;
    found.into_iter().for_each(|change| add(context, ino, change));
    Ok(())
}

fn add(context: &Context, ino: Nid, Change { field, stored, right }: Change) {
    let place = Place::inode(ino.get()).in_field(field);
    context.add(Finding::new(&kinds::INODE_SHAPE, place).hex(stored, right));
}
