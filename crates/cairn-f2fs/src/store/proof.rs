//! Which blocks of a segment are in use, whatever the SIT says: those to which the pointers that
//! its summary names lead, and nodes to which the NAT leads.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use cairn_block::BlockDevice;

use crate::blocks;
use crate::error::{Error, Result};
use crate::format::units::NIDS_PER_BLOCK;
use crate::format::{BlockAddr, Layout, NodeFooter, named};
use crate::nat::Nat;
use crate::segment::{Coverage, Named, Owner, Proof};

/// Blocks of the NAT, and nodes, that a sample reads.
const SAMPLE: usize = 64;

/// The nodes on the device.
pub(super) struct Nodes {
    pub(super) layout: Layout,
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) nat: Arc<Nat>,
}

impl Nodes {
    /// Where the node with the pointer is that a summary names.
    fn holder(&self, owner: Owner) -> Result<Option<(BlockAddr, Owner)>> {
        let entry = match self.nat.lookup(owner.nid) {
            Err(Error::Corrupt(_)) => return Ok(None),
            entry => entry?,
        };
        let is_old = entry.is_free() || entry.version != owner.version;
        let is_node = !is_old && self.layout.in_main(entry.block_addr);
        Ok(is_node.then_some((entry.block_addr, owner)))
    }
}

impl Proof for Nodes {
    fn nodes(&self, mut owners: Named, coverage: Coverage) -> Result<Named> {
        take_sample(&mut owners, coverage, nat_block);
        let mut used = Vec::new();
        for (addr, owner) in owners {
            match self.nat.address(owner.nid) {
                Ok(found) if found == Some(addr) => used.push((addr, owner)),
                Ok(_) | Err(Error::Corrupt(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(used)
    }

    fn data(
        &self,
        mut owners: Named,
        coverage: Coverage,
    ) -> Result<Vec<(BlockAddr, Owner, BlockAddr)>> {
        take_sample(&mut owners, coverage, nat_block);
        take_sample(&mut owners, coverage, |owner| owner.nid.get());
        let mut holders: HashMap<BlockAddr, Named> = HashMap::new();
        for (addr, owner) in owners {
            if let Some((holder, owner)) = self.holder(owner)? {
                holders.entry(holder).or_default().push((addr, owner));
            }
        }
        let mut places: Vec<BlockAddr> = holders.keys().copied().collect();
        places.sort_unstable();
        let mut used = Vec::new();
        let images = blocks::read_many(&*self.device, &places)?;
        for (place, image) in places.iter().zip(images.iter()) {
            let footer = NodeFooter::read(image);
            for (addr, owner) in holders.get(place).into_iter().flatten() {
                let features = self.layout.features;
                // What is damaged proves nothing.
                if footer.nid == owner.nid
                    && named::data_pointer(image, &footer, owner.ofs_in_node, features)
                        .is_ok_and(|pointer| pointer == Some(*addr))
                {
                    used.push((*addr, *owner, *place));
                }
            }
        }
        Ok(used)
    }
}

/// The block of the NAT that has the entry of an owner.
fn nat_block(owner: &Owner) -> u32 {
    owner.nid.get() / NIDS_PER_BLOCK
}

/// Of a sample, leaves those owners that share [`SAMPLE`] of all keys, evenly chosen.
fn take_sample(owners: &mut Named, coverage: Coverage, key: fn(&Owner) -> u32) {
    let keys: BTreeSet<u32> = owners.iter().map(|(_, owner)| key(owner)).collect();
    if coverage == Coverage::All || keys.len() <= SAMPLE {
        return;
    }
    let step = keys.len().div_ceil(SAMPLE);
    let chosen: BTreeSet<u32> = keys.into_iter().step_by(step).collect();
    owners.retain(|(_, owner)| chosen.contains(&key(owner)));
}
