//! What takes the place of a journal: checkpoint packs, orphans, the journals of NAT and SIT, and
//! the chain of fsynced nodes that the next mount recovers.

use std::sync::Arc;

use cairn_base::units::as_u64;
use cairn_block::BlockDevice;
use cairn_check::{Detail, Fields};

use super::checkpoint::{self, log_name};
use super::tables::put_entry;
use crate::checkpoint::Loaded;
use crate::error::{Error, Result};
use crate::format::Inode;
use crate::format::node::Marks;
use crate::nat::Nat;
use crate::raw::{Choice, RawVolume};
use crate::recovery::chain::{self, ChainNode};

/// Most nodes of the chain that are shown.
const MOST: usize = 1 << 18;

/// Shows what the next mount starts from.
///
/// # Errors
/// There is no superblock or checkpoint as asked for, or the device failed.
pub fn show_journal(device: Arc<dyn BlockDevice>, choice: Choice) -> Result<Fields> {
    let volume = RawVolume::open(device, choice)?;
    let mut fields = checkpoint::show(&volume);
    if let Some(loaded) = &volume.loaded {
        match loaded.orphans(&volume.buffers, &volume.layout) {
            Ok(orphans) => {
                fields.put("orphans", orphans.iter().map(|ino| ino.get()).collect::<Vec<_>>());
            }
            Err(error) => fields.put("orphans", error.to_string()),
        }
        journals(&volume, &mut fields);
        put_chain(&volume, loaded, &mut fields);
    }
    if !volume.notes.is_empty() {
        fields.put("warnings", volume.notes.clone());
    }
    Ok(fields)
}

fn journals(volume: &RawVolume, fields: &mut Fields) {
    let nat = volume.journals.nat.0.iter().map(|(nid, entry)| {
        let mut one = Fields::new().with("nid", nid.get());
        put_entry(&mut one, *entry);
        one
    });
    fields.put("nat_journal", nat.collect::<Vec<_>>());
    let sit = volume.journals.sit.0.iter().map(|(segno, entry)| {
        Fields::new()
            .with("segno", segno.get())
            .with("type", log_name(entry.log))
            .with("valid_blocks", entry.valid_blocks())
    });
    fields.put("sit_journal", sit.collect::<Vec<_>>());
}

fn put_chain(volume: &RawVolume, loaded: &Loaded, fields: &mut Fields) {
    let nodes = match chain::scan(&volume.buffers, &volume.layout, &loaded.checkpoint) {
        Ok(nodes) => nodes,
        Err(error) => return fields.put("chain", error.to_string()),
    };
    let list = nodes.iter().take(MOST).map(|node| link(volume, node));
    fields.put("chain", list.collect::<Vec<_>>());
    fields.put("chain_nodes", nodes.len());
    match recovered(volume, loaded, &nodes) {
        Ok(list) => fields.put("recovered", list),
        Err(error) => fields.put("recovered", error.to_string()),
    }
}

fn link(volume: &RawVolume, node: &ChainNode) -> Fields {
    let footer = &node.footer;
    let marks = footer.marks.iter_names().map(|(name, _)| name.to_ascii_lowercase());
    let mut one = Fields::new()
        .with("block", node.addr.get())
        .with("nid", footer.nid.get())
        .with("ino", footer.ino.get())
        .with("ofs", footer.offset)
        .with("marks", marks.collect::<Vec<_>>())
        .with("next_blkaddr", footer.next_blkaddr.get());
    if footer.is_inode() && footer.marks.contains(Marks::DENT) {
        let image = volume.block(node.addr.pba());
        let record = image
            .ok()
            .and_then(|image| Inode::decode(&image, footer.ino, volume.layout.features).ok());
        if let Some(record) = record {
            one.put("i_pino", record.pino.get());
            one.put("i_name", Detail::Name(record.name.to_vec()));
        }
    }
    one
}

/// The inodes that the next mount changes.
fn recovered(volume: &RawVolume, loaded: &Loaded, nodes: &[ChainNode]) -> Result<Vec<Fields>> {
    let layout = Arc::new(volume.layout);
    let nat = Nat::new(layout, volume.buffers.clone(), &loaded.checkpoint, &volume.journals.nat);
    let mut list: Vec<_> = chain::select(nodes, &nat)?.into_iter().collect();
    list.sort_unstable_by_key(|(ino, _)| *ino);
    let shown = list.into_iter().map(|(ino, found)| {
        let until = nodes.get(..=found.last_fsync).unwrap_or_default();
        let count = until.iter().filter(|node| node.footer.ino == ino).count();
        Fields::new()
            .with("inode", ino.get())
            .with("nodes", as_u64(count))
            .with("created", found.created_by.is_some())
            .with("named", found.last_dent.is_some())
    });
    Ok::<_, Error>(shown.collect())
}
