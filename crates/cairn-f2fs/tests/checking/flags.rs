//! Every flag, and values of every field that says how an inode is read, of an inode of each type:
//! after a repair neither Cairn nor fsck.f2fs finds anything, and what was lost is listed.

use cairn_f2fs::format::inode;

use crate::blocks::Judge;
use crate::inject::Injection;

/// A field, its offset, its width, and what is written there; or the bits that change.
type Values = (&'static str, usize, usize, &'static [u64]);

const BITS: &[(&str, usize, usize)] = &[("i_advise", 2, 1), ("i_inline", 3, 1), ("i_flags", 80, 4)];

const FIELDS: &[Values] = &[
    ("i_current_depth", 72, 4, &[0, 1, 2, 63, 64, 0xffff, 0xffff_ffff]),
    ("i_xattr_nid", 76, 4, &[0, 1, 2, 3, 4, 900, 0xffff_ffff]),
    ("i_namelen", 88, 4, &[0, 1, 255, 256, 0xffff_ffff]),
    ("i_dir_level", 347, 1, &[0, 1, 5, 63, 64, 255]),
    ("i_ext.fofs", 348, 4, &[0, 1, 0xffff_ffff]),
    ("i_ext.blk_addr", 352, 4, &[0, 1, 5000, 0xffff_ffff]),
    ("i_ext.len", 356, 4, &[0, 1, 600, 0xffff_ffff]),
];

/// Those of extra attributes.
const EXTRA: &[Values] = &[
    ("i_extra_isize", 360, 2, &[0, 4, 8, 12, 16, 20, 24, 28, 32, 35, 36, 40, 0xffff]),
    ("i_inline_xattr_size", 362, 2, &[0, 1, 5, 6, 50, 200, 902, 903, 904, 0xffff]),
    ("i_projid", 364, 4, &[1, 0xffff_ffff]),
    ("i_compr_blocks", 384, 8, &[1, u64::MAX]),
    ("i_compress_algorithm", 392, 1, &[1, 3, 4, 255]),
    ("i_log_cluster_size", 393, 1, &[1, 2, 3, 8, 9, 255]),
    ("i_compress_flag", 394, 2, &[1, 0xffff]),
];

/// `FS_COMPR_FL`, the lowest byte of `i_flags`.
const FLAGS_AT: usize = 80;
const COMPR: u8 = 4;

fn search(arguments: &[&str], has_extra: bool) {
    let judge = Judge::new(arguments);
    let target = &judge.target;
    let mut cases = Vec::new();
    let mut add = |kind: &str, at, what: String, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = target.read(at);
        let old = bytes.clone();
        change(&mut bytes);
        if bytes == old {
            return;
        }
        inode::seal(&mut bytes, target.layout());
        cases.push(Injection { what: format!("{kind}: {what}"), blocks: vec![(at, bytes)] });
    };
    for (kind, at) in target.inode_of_each_kind() {
        for (name, offset, width) in BITS {
            for bit in 0..8 * width {
                // The mark of attributes in an inode that has neither them nor pointers of its own:
                // the blocks of its nodes lie elsewhere then, and nothing shows it.
                let is_set = target.read(at)[offset + bit / 8] & 1 << (bit % 8) != 0;
                if (*name, bit, is_set) == ("i_inline", 0, false) && shows_nothing(&target.read(at))
                {
                    continue;
                }
                let change = |bytes: &mut Vec<u8>| bytes[offset + bit / 8] ^= 1 << (bit % 8);
                add(&kind, at, format!("{name}, bit {bit}"), &change);
            }
        }
        let fields = FIELDS.iter().chain(EXTRA.iter().filter(|_| has_extra));
        let bytes = target.read(at);
        let extra = usize::from(u16::from_le_bytes([bytes[360], bytes[361]]));
        for (name, offset, width, values) in fields {
            // sload.f2fs does not give an inode all of them.
            if *offset >= 360 && offset + width > 360 + extra {
                continue;
            }
            for value in *values {
                // Both sizes are usual.
                if (*name, *value) == ("i_extra_isize", 36) && shows_nothing(&bytes) {
                    continue;
                }
                let set = |bytes: &mut Vec<u8>| {
                    bytes[*offset..offset + width].copy_from_slice(&value.to_le_bytes()[..*width]);
                };
                add(&kind, at, format!("{name} = {value:#x}"), &set);
                // A size that is possible moves the blocks of a file, as it says.
                let is_possible = *offset == 393 && (2..=8).contains(value);
                if *offset >= 384 && !is_possible {
                    let compressed = |bytes: &mut Vec<u8>| {
                        set(bytes);
                        bytes[FLAGS_AT] |= COMPR;
                    };
                    add(&kind, at, format!("{name} = {value:#x}, compressed"), &compressed);
                }
            }
        }
    }
    let repaired = judge.judge_all(sampled(cases, has_extra.into()).into_iter());
    assert!(repaired > 2);
}

/// One in 16 of these, or all in the long run.
pub fn sampled<T>(cases: Vec<T>, seed: u64) -> Vec<T> {
    sampled_of(cases, seed, 16)
}

/// One in so many of these, or all in the long run. `CAIRN_SWEEP` is another number.
pub fn sampled_of<T>(cases: Vec<T>, seed: u64, every: usize) -> Vec<T> {
    let every = if cairn_testkit::deep() { 1 } else { every };
    let every = std::env::var("CAIRN_SWEEP").ok().and_then(|n| n.parse().ok()).unwrap_or(every);
    let mut random = fastrand::Rng::with_seed(seed);
    cases.into_iter().filter(|_| random.usize(..every) == 0).collect()
}

/// Has an inode neither pointers nor contents nor attributes of its own, but nodes?
fn shows_nothing(bytes: &[u8]) -> bool {
    bytes[396..4052].iter().all(|byte| *byte == 0)
        && bytes[4052..4072].iter().any(|byte| *byte != 0)
}

/// The first pointer of an inode, or one of a node, leads to a block that is free: one that was
/// never written, or one that was another's.
#[test]
fn pointers_to_free_blocks_are_set_or_listed() {
    let judge = Judge::new(&[]);
    let target = &judge.target;
    let (layout, free) = (target.layout(), target.free_blocks());
    let main = layout.main..layout.main + layout.main_segments * 512;
    let slot_of = |at: u64, base: usize| {
        let bytes = target.read(at);
        (0..800).map(|slot| base + 4 * slot).find(|slot| {
            main.contains(&u32::from_le_bytes(bytes[*slot..slot + 4].try_into().unwrap()))
        })
    };
    let inodes = target.inode_of_each_kind().into_iter();
    let inodes = inodes.filter(|(_, at)| target.read(*at)[3] & 6 == 0);
    let inodes = inodes.filter_map(|(what, at)| Some((what, at, slot_of(at, 360)?)));
    let nodes = target.nodes().iter();
    let nodes = nodes.filter_map(|at| Some(("a node".to_owned(), *at, slot_of(*at, 0)?))).take(4);
    let mut cases = Vec::new();
    for (what, at, slot) in inodes.chain(nodes) {
        for (block, summary) in &free {
            let mut bytes = target.read(at);
            bytes[slot..slot + 4].copy_from_slice(&block.to_le_bytes());
            let what = format!("{what}, byte {slot}: block {block}");
            let blocks = summary.iter().cloned().chain([(at, bytes)]).collect();
            cases.push(Injection { what, blocks });
        }
    }
    assert!(cases.len() > 8, "{}", cases.len());
    let every = if cairn_testkit::deep() { 1 } else { 5 };
    let mut linked = 0;
    for injection in cases.into_iter().step_by(every) {
        let done =
            judge.judge(&injection).unwrap_or_else(|why| panic!("{}: {why}", injection.what));
        let Some(done) = done else { continue };
        let steps = done.steps.kept();
        linked += usize::from(steps.iter().any(|step| step.kind.code == "f2fs.block.unlinked"));
    }
    assert!(linked > 0);
}

#[test]
fn flags_and_fields_of_inodes_are_repaired() {
    search(&[], false);
}

#[test]
fn flags_and_fields_of_inodes_are_repaired_with_extra_attributes() {
    search(&["-O", "extra_attr,inode_checksum,inode_crtime"], true);
}

#[test]
fn flags_and_fields_of_inodes_are_repaired_with_compression() {
    search(&["-O", "extra_attr,inode_checksum,compression"], true);
}
