//! What a volume is, for comparing: in memory before, from disk after.

use std::collections::BTreeMap;

use crate::format::checksum::crc32;
use crate::format::units::BLOCK_SIZE;
use crate::format::{Nid, SegNo, SitEntry, Summary};
use crate::space::Counts;
use crate::store::Store;
use cairn_block::BlockDeviceExt;

use super::volume::{nids, pointers};

/// The metadata of a volume: equal before and after it is opened again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub counts: Counts,
    free_segments: u32,
    nat: BTreeMap<Nid, (Nid, u8, u32)>,
    sit: Vec<SitEntry>,
    /// Owners of valid blocks.
    owners: BTreeMap<(SegNo, u16), Summary>,
    nexts: Vec<u32>,
}

impl State {
    pub(crate) fn of(store: &Store) -> Self {
        let nat = nids(store).into_iter().map(|nid| {
            let entry = store.nat.lookup(nid).unwrap();
            (nid, (entry.ino, entry.version, entry.block_addr.get()))
        });
        let sit: Vec<SitEntry> = (0..store.layout.main_segments)
            .map(|segno| store.segments.entry(SegNo(segno)))
            .collect();
        let mut owners = BTreeMap::new();
        for (segno, entry) in
            (0..).map(SegNo).zip(&sit).filter(|(_, entry)| entry.valid_blocks() > 0)
        {
            let summary = store.segments.owners(segno).expect("a summary");
            assert_eq!(summary.is_node, entry.log.is_node(), "{segno}");
            let valid = (0..512).filter(|block| entry.is_valid(*block));
            owners.extend(valid.map(|block| ((segno, block), summary.get(block).unwrap())));
        }
        Self {
            counts: store.space.counts(),
            free_segments: store.segments.free_segment_count(),
            nat: nat.collect(),
            sit,
            owners,
            nexts: crate::format::Log::ALL
                .map(|log| store.segments.next_address(log).get())
                .to_vec(),
        }
    }
}

/// The contents of all data blocks, by node and slot. Moved blocks are equal.
pub(crate) fn contents(store: &Store) -> BTreeMap<(Nid, u16), u32> {
    let mut contents = BTreeMap::new();
    for nid in nids(store) {
        let node = store.nodes.get(nid).unwrap();
        for (slot, addr) in pointers(store, &node).into_iter().filter(|(_, addr)| addr.is_address())
        {
            assert!(store.segments.is_valid(addr), "{nid} {slot}");
            let bytes = store.device.read_at(addr.bytes(), BLOCK_SIZE).unwrap();
            contents.insert((nid, slot), crc32(0, &bytes));
        }
    }
    contents
}
