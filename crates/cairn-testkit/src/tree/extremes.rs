//! Attributes at the limits, for a tree that is planned: access lists and default lists, times that
//! formats can just store, attributes with the longest name.

use cairn_vfs::{Timestamp, acl};

use super::plan::Step;

/// First and last second of ext4's inodes of 256 bytes.
const TIMES: [i64; 4] = [-(1 << 31), (1 << 34) - (1 << 31) - 1, -1, 1 << 32];
/// Longest name of an attribute.
const NAME: usize = 255;

/// The steps of `plan`, and behind them such attributes for some of what they make. What is there
/// keeps its lists when a directory above gets a default list.
#[must_use]
pub fn with_extremes(mut plan: Vec<Step>, seed: u64) -> Vec<Step> {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x6c69_7374);
    let mut more = Vec::new();
    for step in &plan {
        let (path, is_directory) = match step {
            Step::Directory(path) => (path, true),
            Step::File(path, _) | Step::Fifo(path) => (path, false),
            _ => continue,
        };
        if rng.u8(0..3) == 0 {
            more.push(Step::Xattr(path.clone(), acl::ACCESS.to_vec(), list(&mut rng)));
        }
        if is_directory && rng.bool() {
            more.push(Step::Xattr(path.clone(), acl::DEFAULT.to_vec(), list(&mut rng)));
        }
        if !matches!(step, Step::Fifo(_)) && rng.u8(0..6) == 0 {
            let name = [&b"user."[..], &[b'n'; NAME - 5]].concat();
            more.push(Step::Xattr(path.clone(), name, vec![rng.u8(..); rng.usize(0..1500)]));
        }
        if rng.u8(0..5) == 0 {
            let mut time = || {
                let seconds = TIMES[rng.usize(0..TIMES.len())];
                Timestamp { seconds, nanoseconds: 0 }
            };
            more.push(Step::Times(path.clone(), time(), time()));
        }
    }
    plan.extend(more);
    plan
}

/// A list with one or two named entries; rarely one that says no more than a mode.
fn list(rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut entry = |tag| acl::Entry { tag, permissions: rng.u8(0..8) };
    let mut entries =
        [acl::Tag::UserObj, acl::Tag::GroupObj, acl::Tag::Other].map(&mut entry).to_vec();
    let named = entry(acl::Tag::User(5)).permissions;
    if named > 0 {
        entries.extend([acl::Tag::User(named.into()), acl::Tag::Mask].map(&mut entry));
        entries.extend((named > 4).then(|| entry(acl::Tag::Group(70_000))));
    }
    acl::Acl::new(entries).expect("the list has all entries").to_xattr()
}
