//! Every field of the structures of a small volume with values that are possible: one change each,
//! with its checksum.

use cairn_f2fs::format::inode;

use crate::fields::{DENTRY, SLOT};
use crate::inject::Injection;
use crate::types::Judge;

/// Where an inode's type is, its flags for what lies in it, its pointers and its nids.
const TYPE_AT: usize = 1;
const FLAGS_AT: usize = 3;
const POINTERS_AT: usize = 360;
const NIDS_AT: usize = 4052;
const FOOTER_AT: usize = 4072;
/// In a block of a directory.
const ENTRIES_AT: usize = 30;
const NAMES_AT: usize = 2384;

/// A field, its offset, its width, and values that are written there.
type Values = (&'static str, usize, usize, &'static [u64]);

/// Fields of inodes, also those of extra attributes.
const VALUES: &[Values] = &[
    ("i_links", 12, 4, &[0, 1, 2, 3, 77, 0xffff_ffff]),
    ("i_size", 16, 8, &[0, 1, 100, 4095, 4096, 8192, 50_001, 1 << 20, 1 << 40]),
    ("i_blocks", 24, 8, &[0, 1, 2, 3, 77]),
    ("i_generation", 68, 4, &[0, 1]),
    ("i_current_depth", 72, 4, &[0, 1, 2, 3, 63, 64]),
    ("i_xattr_nid", 76, 4, &[0, 1, 3, 4, 5, 12]),
    ("i_pino", 84, 4, &[0, 3, 4, 12]),
    ("i_namelen", 88, 4, &[0, 1, 3, 255, 256]),
    ("i_name", 92, 1, &[0, 0x2f, 0x61]),
    ("i_dir_level", 347, 1, &[0, 1, 2, 5, 63, 64]),
    ("i_ext.fofs", 348, 4, &[0, 1, 2]),
    ("i_ext.blk_addr", 352, 4, &[0, 5000, 5001]),
    ("i_ext.len", 356, 4, &[0, 1, 2, 600]),
];

const EXTRA: &[Values] = &[
    ("i_extra_isize", 360, 2, &[0, 4, 8, 12, 16, 24, 28, 32, 36, 40]),
    ("i_inline_xattr_size", 362, 2, &[0, 5, 6, 10, 49, 50, 51, 100, 200, 903]),
    ("i_projid", 364, 4, &[1, 77]),
    ("i_crtime", 372, 8, &[0, u64::MAX]),
    ("i_compr_blocks", 384, 8, &[1, 77]),
    ("i_compress_algorithm", 392, 1, &[1, 3]),
    ("i_log_cluster_size", 393, 1, &[2, 8]),
];

/// Bytes of which each bit is changed.
const BITS: &[(&str, usize)] = &[
    ("i_advise", 2),
    ("i_inline", 3),
    ("i_flags", 80),
    ("i_flags, second byte", 81),
    ("i_flags, third byte", 82),
    ("i_flags, last byte", 83),
];

/// Types that are no type, and all that are one.
const TYPES: &[u8] = &[0, 1, 2, 4, 6, 8, 10, 12, 15];

/// A change, and the field that it changes.
pub struct Case {
    pub injection: Injection,
    pub field: &'static str,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

struct Cases<'j> {
    judge: &'j Judge,
    list: Vec<Case>,
}

impl Cases<'_> {
    /// A change of a block. One that changes nothing is none.
    fn add(&mut self, at: u64, field: &'static str, what: String, change: &dyn Fn(&mut Vec<u8>)) {
        let target = &self.judge.target;
        let old = target.read(at);
        let mut bytes = old.clone();
        change(&mut bytes);
        if bytes == old {
            return;
        }
        if word(&bytes, FOOTER_AT) == word(&bytes, FOOTER_AT + 4) {
            inode::seal(&mut bytes, target.layout());
        }
        let injection = Injection { what, blocks: vec![(at, bytes)] };
        self.list.push(Case { injection, field });
    }

    fn inode(&mut self, name: &str, at: u64) {
        for (field, byte) in BITS {
            for bit in 0..8 {
                let what = format!("{name}: {field}, bit {bit}");
                self.add(at, field, what, &|bytes| bytes[*byte] ^= 1 << bit);
            }
        }
        for kind in TYPES {
            let what = format!("{name}: type {kind}");
            self.add(at, "i_mode", what, &|bytes| {
                bytes[TYPE_AT] = bytes[TYPE_AT] & 0xf | kind << 4;
            });
        }
        let has_extra = self.judge.target.read(at)[FLAGS_AT] & 0x20 != 0;
        for (field, at_byte, width, values) in
            VALUES.iter().chain(EXTRA.iter().filter(|_| has_extra))
        {
            for value in *values {
                let what = format!("{name}: {field} = {value:#x}");
                self.add(at, field, what, &|bytes| {
                    bytes[*at_byte..at_byte + width]
                        .copy_from_slice(&value.to_le_bytes()[..*width]);
                });
            }
        }
        for field in ["nid", "ino", "flag", "cp_ver"] {
            let offset = match field {
                "nid" => 0,
                "ino" => 4,
                "flag" => 8,
                _ => 12,
            };
            for bit in [0, 1, 3, 5] {
                let what = format!("{name}: footer.{field}, bit {bit}");
                self.add(at, field, what, &|bytes| bytes[FOOTER_AT + offset] ^= 1 << bit);
            }
        }
    }

    /// Pointers of one inode or node that lead to what another one has.
    fn pointers(&mut self, name: &str, at: u64, base: usize, others: &[u32]) {
        let bytes = self.judge.target.read(at);
        let main = self.judge.target.layout().main;
        let slots = (base..NIDS_AT).step_by(4).filter(|at| word(&bytes, *at) >= main);
        for slot in slots.take(2) {
            for other in others.iter().copied().chain([0, u32::MAX, main, main + 1]) {
                let what = format!("{name}: byte {slot}: block {other:#x}");
                let field = match other {
                    0 | u32::MAX => "hole",
                    other if others.contains(&other) => "i_addr",
                    _ => "free block",
                };
                self.add(at, field, what, &|bytes| {
                    bytes[slot..slot + 4].copy_from_slice(&other.to_le_bytes());
                });
            }
        }
    }

    /// The first entries of a block, or those in an inode that has `slots` of them.
    fn entries(&mut self, what: &str, at: u64, places: (usize, usize, usize)) {
        let (bitmap, entries, names) = places;
        for slot in [0, 1, 2, 3, 6, 7] {
            let entry = entries + slot * DENTRY;
            let name = names + slot * SLOT;
            let bit = (bitmap + slot / 8, 1_u8 << (slot % 8));
            for (field, byte, changes) in [
                ("hash", entry, &[1_u8, 0x80][..]),
                ("number", entry + 4, &[1, 2, 4, 8]),
                ("name_len", entry + 8, &[1, 2, 8, 32]),
                ("file_type", entry + 10, &[1, 3, 6]),
                ("name", name, &[1, 4, 0x2f]),
                ("bitmap", bit.0, &[bit.1]),
            ] {
                for change in changes {
                    let what = format!("{what}: slot {slot}.{field} ^ {change:#x}");
                    self.add(at, field, what, &|bytes| bytes[byte] ^= change);
                }
            }
        }
    }

    fn nat(&mut self, nid: u32, others: &[u32]) {
        let target = &self.judge.target;
        let field = |index: usize| crate::fields::NAT[index];
        let nid = nid as usize;
        for value in [1, 77] {
            let injection = target.inject_nat(nid, field(0), value);
            self.list.push(Case { injection, field: "version" });
        }
        for value in [0, 3, 5, 0xffff_ffff] {
            let injection = target.inject_nat(nid, field(1), value);
            self.list.push(Case { injection, field: "ino" });
        }
        for value in others.iter().copied().chain([0, 1, 0xffff_ffff]) {
            let injection = target.inject_nat(nid, field(2), value);
            self.list.push(Case { injection, field: "block_addr" });
        }
    }
}

/// All changes of a volume.
pub fn cases(judge: &Judge) -> Vec<Case> {
    let mut cases = Cases { judge, list: Vec::new() };
    let target = &judge.target;
    let main = target.layout().main;
    let places: Vec<(&str, u32, u64)> =
        judge.numbers.iter().map(|(name, ino)| (*name, *ino, target.inode_of(*ino))).collect();
    let own: Vec<u32> = places.iter().map(|(_, _, at)| (at >> 12) as u32).collect();
    let first = |name: &str| {
        let bytes = target.read(target.inode_of(judge.numbers[name]));
        (POINTERS_AT..NIDS_AT).step_by(4).map(|at| word(&bytes, at)).find(|word| *word >= main)
    };
    let others: Vec<u32> = ["pointers", "large"].iter().filter_map(|name| first(name)).collect();
    for (name, ino, at) in &places {
        cases.inode(name, *at);
        let bytes = target.read(*at);
        if bytes[FLAGS_AT] & 6 == 0 {
            cases.pointers(name, *at, POINTERS_AT, &others);
        }
        for slot in 0..2 {
            for value in [0, *ino, 3, 12, 0xffff_ffff] {
                let what = format!("{name}: nid {slot} = {value:#x}");
                let field = if value == 0 { "hole" } else { "i_nid" };
                cases.add(*at, field, what, &|bytes| {
                    bytes[NIDS_AT + 4 * slot..NIDS_AT + 4 * slot + 4]
                        .copy_from_slice(&value.to_le_bytes());
                });
            }
        }
        cases.nat(*ino, &own[..3]);
    }
    for at in target.nodes() {
        let what = format!("node at {at:#x}");
        for (field, offset) in [("nid", 0), ("ino", 4), ("flag", 8), ("cp_ver", 12), ("next", 20)] {
            for bit in [0, 1, 3, 5] {
                let what = format!("{what}: footer.{field}, bit {bit}");
                cases.add(*at, "footer", what, &|bytes| bytes[FOOTER_AT + offset] ^= 1 << bit);
            }
        }
        cases.pointers(&what, *at, 0, &others);
    }
    for at in target.directory_blocks() {
        cases.entries(&format!("directory at {at:#x}"), *at, (0, ENTRIES_AT, NAMES_AT));
    }
    cases.list
}
