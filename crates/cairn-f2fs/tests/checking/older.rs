//! The NAT leads to an older version of a node, and what shows the present one is damaged, too: its
//! summary, its footer, its block, or its entry of the SIT. No repair without losses takes the
//! older version for the node.

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_check::repair::Scope;
use cairn_vfs::{FileSystem, IoFlags};

use crate::called_free::entry_place;
use crate::listed::{set, word};
use crate::repair::damaged;
use crate::stale::{led_back, place_of};
use crate::types::{Judge, planted};
use crate::volume::open;
use crate::{check, lines};

const NAMES: [&str; 3] = ["inline", "pointers", "nodes"];
const NODE_LOGS_AT: usize = 36;
const PACK_BLOCKS_AT: usize = 136;
const SUMMARY: usize = 7;
const NID_AT: usize = 4072;
const VERSION_AT: usize = 4084;

/// What is damaged beside the NAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Second {
    /// The entry of the summary.
    Summary,
    /// The node's number in its footer.
    Footer,
    /// The version in the footer is one to come.
    Version,
    /// The block is empty.
    Block,
    /// The SIT calls the block free.
    Bit,
    /// The count of the SIT's entry contradicts its bits.
    Count,
}

const SECONDS: [Second; 6] =
    [Second::Summary, Second::Footer, Second::Version, Second::Block, Second::Bit, Second::Count];

/// The segment of a block, and its number there.
fn segment_of(judge: &Judge, at: u64) -> (u32, usize) {
    let block = (at / 4096) as u32 - judge.target.layout().main;
    (block / 512, (block % 512) as usize)
}

/// Where the summary block of a segment of nodes is: in the pack, if a log writes there.
fn summary_block(judge: &Judge, segment: u32) -> u64 {
    let (head, _) = judge.target.pack();
    let pack = judge.target.read(head);
    let logs = (0_usize..3).map(|log| (log, word(&pack, NODE_LOGS_AT + 4 * log)));
    let blocks = u64::from(word(&pack, PACK_BLOCKS_AT));
    match logs.into_iter().find(|(_, current)| *current == segment) {
        Some((log, _)) => head + ((blocks - 4 + log as u64) << 12),
        None => u64::from(judge.target.layout().ssa + segment) << 12,
    }
}

impl Second {
    /// The block that changes, for the present version of a node.
    fn change(self, judge: &Judge, at: u64) -> (u64, Vec<u8>) {
        let target = &judge.target;
        let (segment, offset) = segment_of(judge, at);
        let (entry_at, entry) = entry_place(target, segment);
        let (place, mut bytes) = match self {
            Self::Summary => {
                let place = summary_block(judge, segment);
                (place, target.read(place))
            }
            Self::Bit | Self::Count => (entry_at, target.read(entry_at)),
            _ => (at, target.read(at)),
        };
        match self {
            Self::Summary => {
                assert_eq!(word(&bytes, offset * SUMMARY), word(&target.read(at), NID_AT));
                set(&mut bytes, offset * SUMMARY, 0);
            }
            Self::Footer => bytes[NID_AT] ^= 64,
            Self::Version => bytes[VERSION_AT] += 5,
            Self::Block => bytes.fill(0),
            Self::Bit => {
                let count = u16::from_le_bytes([bytes[entry], bytes[entry + 1]]) - 1;
                bytes[entry..entry + 2].copy_from_slice(&count.to_le_bytes());
                bytes[entry + 2 + offset / 8] &= !(0x80 >> (offset % 8));
            }
            Self::Count => bytes[entry + 2 + 60] ^= 1,
        }
        (place, bytes)
    }
}

/// A node of a file: its path, number, and the places of its older and present versions.
type Changed = (&'static str, u32, [u64; 2]);

/// A volume whose files changed, and the nodes of these files.
fn changed() -> (Judge, Vec<Changed>) {
    let old = Judge::new(&[]);
    let device: Arc<MemoryDevice> = Arc::new(planted(&[]).fork());
    let fs = open(device.clone(), "nodiscard,mode=lfs");
    for name in NAMES {
        let attr = fs.lookup(fs.root(), name.as_bytes()).unwrap();
        fs.write(attr.ino, attr.size - 1, &[5; 900], IoFlags::empty()).unwrap();
    }
    fs.unmount().unwrap();
    let judge = Judge::of(&device);
    let inode = judge.target.read(place_of(&device, judge.numbers["nodes"]));
    let mut numbers: Vec<(&str, u32)> =
        NAMES.iter().map(|name| (*name, judge.numbers[name])).collect();
    let below = (0..2).map(|slot| word(&inode, crate::pointers::NIDS_AT + 4 * slot));
    numbers.extend(below.filter(|nid| *nid > 0).map(|nid| ("nodes", nid)));
    let places = numbers.into_iter().map(|(name, nid)| {
        (name, nid, [place_of(&old.target.device, nid), place_of(&device, nid)])
    });
    let places: Vec<_> = places.filter(|(_, _, [old, new])| old != new).collect();
    (judge, places)
}

#[test]
fn an_older_version_beside_further_damage_is_not_taken_for_the_node() {
    let (judge, nodes) = changed();
    assert!(nodes.len() > 3, "{}", nodes.len());
    for (name, nid, [older, present]) in nodes {
        for second in SECONDS {
            let mut injection = led_back(&judge, nid, older);
            injection.what = format!("{name}, node {nid}, {second:?}");
            let (at, bytes) = second.change(&judge, present);
            // The journals of the NAT and of the SIT may be in one block.
            match injection.blocks.iter().position(|(known, _)| *known == at) {
                None => injection.blocks.push((at, bytes)),
                Some(known) => {
                    let sound = judge.target.read(at);
                    let both = &mut injection.blocks[known].1;
                    for place in (0..4096).filter(|place| sound[*place] != bytes[*place]) {
                        both[place] = bytes[place];
                    }
                }
            }
            let what = &injection.what;
            let device: Arc<dyn BlockDevice> = Arc::new(damaged(&judge.target, &injection));
            let found = lines(&check(device).unwrap());
            let (tree, lost) = judge.repair(&injection, Scope::Accounting);
            assert!(lost.is_empty(), "{what}: {lost:?}\n{found}");
            assert_eq!(tree.is_some(), second == Second::Summary, "{what}:\n{found}");
            assert!(tree.is_none_or(|tree| tree == judge.sound), "{what}:\n{found}");
            let path = [b"/", name.as_bytes()].concat();
            let (tree, lost) = judge.repair(&injection, Scope::All);
            let is_listed = lost.contains(&path);
            assert!(second == Second::Summary || is_listed, "{what}: {lost:?}\n{found}");
            let mut tree = tree.unwrap();
            if is_listed {
                tree.insert(path.clone(), judge.sound[&path].clone());
            }
            assert!(tree == judge.sound, "{what}:\n{found}");
        }
    }
}
