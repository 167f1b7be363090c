//! Where the extended attributes of a node go: to its record, or to a block that nodes with equal
//! attributes share.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use cairn_base::Pba;
use cairn_base::names::Escaped;
use cairn_vfs::new_tree::{Node, Source};
use cairn_vfs::{Acl, FileKind};

use super::error::{PopulateError, PopulateResult};
use super::settings::Settings;
use super::values::{Values, number as number_values};
use crate::format::xattr::{
    OwnedAttribute, OwnedValue, REFCOUNT_MAX, VALUE_MAX, encode_block, seal_block, set_refcount,
};
use crate::xattr::{Content, acl, names};

/// No block.
pub(super) const NONE: u32 = u32::MAX;

/// A block of attributes.
pub(super) struct SharedBlock {
    /// A node that has these attributes.
    node: u32,
    refcount: u32,
}

/// The blocks of attributes.
#[derive(Default)]
pub(super) struct SharedBlocks {
    pub(super) blocks: Vec<SharedBlock>,
    /// By the hash of the attributes: the block that takes the next node.
    open: HashMap<u64, Vec<u32>>,
}

/// The attributes of a node by their place. Values that fit no container are in
/// `values`.
pub(super) fn place(
    source: &dyn Source,
    id: u32,
    node: &Node<'_>,
    settings: &Settings,
    values: &Values,
) -> PopulateResult<Content> {
    try_place(source, id, node, settings, values)?.map_err(|index| {
        let (name, _) = node.xattrs[index as usize];
        refuse(source, id, name, "has no room beside the others in one block")
    })
}

/// As [`place`]. The inner error is the index of an attribute that has no room.
pub(super) fn try_place(
    source: &dyn Source,
    id: u32,
    node: &Node<'_>,
    settings: &Settings,
    values: &Values,
) -> PopulateResult<Result<Content, u32>> {
    let mut content = Content::default();
    let capacity = (settings.area, settings.block_size);
    for (index, (name, value)) in (0_u32..).zip(&node.xattrs) {
        let stored = stored(node, name, value).map_err(|why| refuse(source, id, name, &why))?;
        let Some(attribute) = stored else { continue };
        if content.contains(&attribute) {
            return Err(refuse(source, id, name, "exists twice"));
        }
        let Err(attribute) = content.place(attribute, capacity) else { continue };
        let far = values.refer(source, &attribute);
        if far.is_none_or(|far| content.place(far, capacity).is_err()) {
            return Ok(Err(index));
        }
    }
    Ok(Ok(content))
}

fn refuse(source: &dyn Source, id: u32, name: &[u8], why: &str) -> PopulateError {
    PopulateError::node(source.path(id), format!("attribute {}: {why}", name.escaped()))
}

/// The stored form of an attribute; none for an access list that only repeats the permissions.
fn stored(node: &Node<'_>, name: &[u8], value: &[u8]) -> Result<Option<OwnedAttribute>, String> {
    let (index, rest) = names::parse(name).map_err(|error| error.to_string())?;
    if value.len() > VALUE_MAX {
        return Err(format!("{} bytes are more than {VALUE_MAX}", value.len()));
    }
    let kind = node.kind.file_kind();
    if index == names::USER && !matches!(kind, FileKind::Regular | FileKind::Directory) {
        return Err("only files and directories have attributes of users".into());
    }
    let mut value = value.to_vec();
    if matches!(index, names::ACL_ACCESS | names::ACL_DEFAULT) {
        if kind == FileKind::Symlink || (index == names::ACL_DEFAULT && kind != FileKind::Directory)
        {
            return Err("this kind of file has no such list".into());
        }
        match Acl::from_xattr(&value).map_err(|error| error.to_string())? {
            None => return Ok(None),
            Some(list) if index == names::ACL_ACCESS && list.equivalent_mode().1 => {
                return Ok(None);
            }
            Some(_) => value = acl::to_stored(&value).map_err(|error| error.to_string())?,
        }
    }
    let value = OwnedValue::Here(value);
    Ok(Some(OwnedAttribute { index, name: rest.to_vec(), value }))
}

impl SharedBlocks {
    /// The block for these attributes of node `id`.
    pub(super) fn share(
        &mut self,
        source: &dyn Source,
        id: u32,
        attributes: &[OwnedAttribute],
        settings: &Settings,
        values: &mut Values,
    ) -> PopulateResult<u32> {
        let mut hasher = DefaultHasher::new();
        for attribute in attributes {
            (attribute.index, &attribute.name, attribute.value_here()).hash(&mut hasher);
        }
        let known = self.open.entry(hasher.finish()).or_default();
        for (at, number) in known.iter().enumerate() {
            let block = &mut self.blocks[*number as usize];
            let other = place(source, block.node, &source.node(block.node), settings, values)?;
            if other.block == attributes {
                let number = *number;
                block.refcount += 1;
                if block.refcount == REFCOUNT_MAX {
                    known.swap_remove(at);
                }
                return Ok(number);
            }
        }
        let number = u32::try_from(self.blocks.len()).expect("fewer blocks than nodes");
        known.push(number);
        values.count_uses(attributes);
        self.blocks.push(SharedBlock { node: id, refcount: 1 });
        Ok(number)
    }

    /// Forgets what only [`SharedBlocks::share`] needs.
    pub(super) fn finish(&mut self) {
        self.open = HashMap::new();
    }

    /// The bytes of a block.
    pub(super) fn encode(
        &self,
        number: u32,
        pba: Pba,
        source: &dyn Source,
        settings: &Settings,
        (values, first_value): (&Values, u32),
        out: &mut [u8],
    ) -> PopulateResult<()> {
        let block = &self.blocks[number as usize];
        let mut content = place(source, block.node, &source.node(block.node), settings, values)?;
        number_values(&mut content.block, first_value);
        encode_block(out, &mut content.block);
        set_refcount(out, block.refcount);
        seal_block(out, pba, settings.checksum);
        Ok(())
    }
}
