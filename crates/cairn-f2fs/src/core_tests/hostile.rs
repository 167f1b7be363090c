//! Damaged nodes and tables are told, never believed.

use std::sync::Arc;

use crate::format::inode::InlineFlags;
use crate::format::path::NodeKind;
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE};
use crate::format::{Nid, NodeFooter};
use crate::segment::{Mode, Owner};
use crate::store::{Store, StoreOptions, live};
use crate::{Corrupt, Error};
use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_cache::budget::Budget;

use super::memory::{open, small};
use super::volume::{decode, files, layout_of, pointers};

fn damaged(base: &MemoryDevice, at: u64, change: impl FnOnce(&mut [u8])) -> Arc<MemoryDevice> {
    let device = Arc::new(base.fork());
    let mut block = device.read_at(at, BLOCK_SIZE).unwrap();
    change(&mut block);
    device.write_at(at, block).unwrap();
    device
}

#[test]
fn a_footer_that_names_another_node_is_corruption() {
    let base = small();
    let store = open(Arc::new(base.fork()));
    let node = files(&store).swap_remove(0);
    let footer = node.footer();
    let at = node.address().bytes();
    let wrong: [(&str, NodeFooter); 4] = [
        ("nid", NodeFooter { nid: Nid(99), ..footer }),
        ("ino", NodeFooter { ino: Nid(99), ..footer }),
        ("offset", NodeFooter { offset: 7, ..footer }),
        ("beyond the tree", NodeFooter { offset: 0x1fff_fff0, ..footer }),
    ];
    for (what, footer) in wrong {
        let store = open(damaged(&base, at, |block| footer.write(block)));
        let outcome = store.nodes.get(node.nid());
        assert!(matches!(outcome, Err(Error::Corrupt(Corrupt::Node { .. }))), "{what}");
        assert!(store.nodes.get(Nid::ROOT).is_ok());
    }
    assert!(
        store.nodes.child(node.nid(), Nid(99), 0).is_err()
            && store.nodes.child(node.nid(), node.ino(), 1).is_err()
    );
    assert!(store.nodes.get(Nid(0)).is_err() && store.nodes.get(Nid(u32::MAX)).is_err());
    let free = store.nat.allocate().unwrap();
    assert!(matches!(store.nodes.get(free), Err(Error::Corrupt(Corrupt::Nat { .. }))));
}

/// A summary may name an inode that has contents where others have pointers.
#[test]
fn contents_in_an_inode_are_no_pointers() {
    let store = open(Arc::new(small().fork()));
    let mut found = 0;
    for node in files(&store).into_iter().filter(|node| node.kind() == NodeKind::Inode) {
        let slots = pointers(&store, &node).into_iter();
        let Some((slot, addr)) = slots.clone().find(|(_, addr)| addr.is_address()) else {
            continue;
        };
        let owner = Owner { nid: node.nid(), version: node.version(), ofs_in_node: slot };
        assert!(live::find(&store, addr, owner).unwrap().is_some());
        assert_eq!(live::address(&store, owner).unwrap(), Some(addr));
        let mut record = decode(&store, &node);
        record.inline.insert(InlineFlags::DATA);
        record.size = 40;
        let inside = store.operation_lock.lock_op().unwrap();
        record.encode_into(&mut node.modify());
        drop(inside);
        assert!(live::find(&store, addr, owner).unwrap().is_none());
        assert_eq!(live::address(&store, owner).unwrap(), None);
        found += 1;
    }
    assert!(found > 0);
}

#[test]
fn random_bytes_in_metadata_give_errors_only() {
    let base = small();
    let layout = layout_of(&base);
    let mut random = fastrand::Rng::with_seed(41);
    let mut refused = 0;
    for round in 0..300 {
        let device = Arc::new(base.fork());
        // Packs, the used parts of SIT and NAT, summaries; not the superblock.
        let areas = [layout.cp, layout.cp + 512, layout.sit, layout.nat, layout.ssa];
        for _ in 0..random.usize(1..12) {
            let block = areas[random.usize(..areas.len())] + random.u32(..8);
            let at = u64::from(block) * BLOCK_BYTES + random.u64(..BLOCK_BYTES);
            device.write_at(at, vec![random.u8(..)]).unwrap();
        }
        let options = StoreOptions { mode: Mode::Adaptive, discard: false };
        let dynamic: Arc<dyn BlockDevice> = device;
        let runtime = cairn_base::runtime::threads::Threads::new();
        match Store::open(dynamic, layout, options, Budget::new(1 << 20), runtime) {
            Ok(store) => touch(&store),
            Err(Error::Corrupt(_)) => refused += 1,
            Err(other) => panic!("round {round}: {other}"),
        }
    }
    assert!(refused > 20, "{refused} refused");
}

/// Uses everything that may be damaged; only corruption may be found.
fn touch(store: &Store) {
    for nid in (3..200).map(Nid) {
        let outcome = store.nodes.get(nid);
        assert!(matches!(outcome, Ok(_) | Err(Error::Corrupt(_))));
        if let Ok(node) = outcome
            && let Ok(_inside) = store.operation_lock.lock_op()
        {
            drop(node.modify());
        }
    }
    let outcome = store.checkpoints.write(crate::checkpoint::Reason::Sync);
    assert!(matches!(outcome, Ok(_) | Err(Error::Corrupt(_))), "{outcome:?}");
}
