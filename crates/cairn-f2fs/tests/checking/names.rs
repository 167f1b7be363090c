//! Names that are lost, of inodes that have others: they are counted as lost.

use std::sync::Arc;

use cairn_block::wrap::Overlay;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::Scope;
use cairn_f2fs::format::inode;
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::inject::{Injection, Target};
use crate::repair::{apply, fsck, plan};
use crate::volume::{FOLDED, MIB, open, volume};
use crate::{check, lines};

/// Where the names of a block of a directory begin, and bytes of one slot.
pub const NAMES_AT: usize = 2384;
pub const SLOT: usize = 8;

/// Where a name is: the block's place, its bytes and the slot. Panics if no block of a directory
/// has it.
pub fn block_of(target: &Target, name: &[u8]) -> (u64, Vec<u8>, usize) {
    block_among(target, target.directory_blocks().iter().copied(), name)
}

fn block_among(
    target: &Target,
    places: impl Iterator<Item = u64>,
    name: &[u8],
) -> (u64, Vec<u8>, usize) {
    for at in places {
        let bytes = target.read(at);
        let has = |slot: &usize| {
            let is_used = bytes[slot / 8] & 1 << (slot % 8) != 0;
            is_used && bytes[NAMES_AT + slot * SLOT..].starts_with(name)
        };
        if let Some(slot) = (0..214).find(has) {
            return (at, bytes, slot);
        }
    }
    panic!("no directory has the name");
}

/// Frees the slots of a name.
pub fn without_name(target: &Target, name: &[u8]) -> Injection {
    let (at, mut bytes, slot) = block_of(target, name);
    for slot in slot..slot + name.len().div_ceil(SLOT) {
        bytes[slot / 8] &= !(1 << (slot % 8));
    }
    let what = String::from_utf8_lossy(name).into_owned();
    Injection { what, blocks: vec![(at, bytes)] }
}

fn over(target: &Target, injection: &Injection) -> Arc<Overlay> {
    let base: Arc<dyn BlockDevice> = Arc::new(target.device.fork());
    let overlay = Arc::new(Overlay::new(base).unwrap());
    for (at, bytes) in &injection.blocks {
        overlay.write_at(*at, bytes.clone()).unwrap();
    }
    overlay
}

#[test]
fn a_lost_name_of_a_hard_link_is_listed() {
    let target = Target::new(&[]);
    let injection = without_name(&target, b"small");
    let overlay = over(&target, &injection);
    let device: Arc<dyn BlockDevice> = overlay.clone();
    let found = lines(&check(device.clone()).unwrap());
    assert!(found.contains("f2fs.inode.names: ") && found.contains("(2 stored, 1 computed)"));
    let safe = plan(&device, Scope::Accounting).unwrap();
    assert!(safe.changes.is_empty(), "{:?}", safe.steps.kept());
    let all = plan(&device, Scope::All).unwrap();
    let losses: Vec<_> = all.steps.losing().filter_map(|step| step.loss.as_ref()).collect();
    assert!(losses.iter().any(|loss| &*loss.what == "1 of 2 names"), "{losses:?}");
    apply(&all, &device);
    assert_eq!(check(device.clone()).unwrap().count(), 0);
    fsck(&target, &overlay).unwrap();
}

/// A file that records its name gets it again, also if it has another one.
#[test]
fn a_lost_name_that_the_inode_records_is_made_again() {
    let target = Target::new(&[]);
    for (name, scope) in [(b"medium", Scope::Accounting), (b"linked", Scope::All)] {
        let overlay = over(&target, &without_name(&target, name));
        let device: Arc<dyn BlockDevice> = overlay.clone();
        let done = plan(&device, scope).unwrap();
        assert_eq!(done.after.count(), 0);
        assert!(done.steps.losing().all(|step| step.loss.is_none()), "{:?}", done.steps.kept());
        apply(&done, &device);
        fsck(&target, &overlay).unwrap();
    }
}

/// Its hash tells which byte of a name is wrong, also where the inode records another name.
#[test]
fn a_wrong_byte_of_a_name_is_set_again() {
    let target = Target::new(&[]);
    let (at, mut bytes, slot) = block_of(&target, b"linked");
    bytes[NAMES_AT + slot * SLOT + 1] = b'!';
    let overlay = over(&target, &Injection { what: "linked".into(), blocks: vec![(at, bytes)] });
    let device: Arc<dyn BlockDevice> = overlay.clone();
    let found = lines(&check(device.clone()).unwrap());
    assert!(found.contains("f2fs.directory.hash: "), "{found}");
    let done = plan(&device, Scope::Accounting).unwrap();
    assert_eq!(done.after.count(), 0);
    apply(&done, &device);
    let mended = overlay.read_at(at, 4096).unwrap();
    assert!(mended[NAMES_AT + slot * SLOT..].starts_with(b"linked"));
    fsck(&target, &overlay).unwrap();
}

/// A name that is no UTF-8 has no other form: its hash is that of its bytes.
#[test]
fn a_name_that_is_no_longer_utf8_is_set_again_where_case_is_ignored() {
    let device = volume(64 * MIB, FOLDED);
    let fs = open(device.clone(), "");
    for name in [&b"A rather Long Name"[..], b"another", b"ONE MORE"] {
        let ino = fs.create(fs.root(), name, NewInode::Regular, 0o600, &Caller::ROOT).unwrap().ino;
        fs.write(ino, 0, name, IoFlags::empty()).unwrap();
    }
    fs.unmount().unwrap();
    let target = Target::of(&device);
    for name in [&b"A rather Long Name"[..], b"ONE MORE"] {
        let all = (0..64 * MIB).step_by(4096);
        let (at, right, slot) = block_among(&target, all, name);
        let mut bytes = right.clone();
        bytes[NAMES_AT + slot * SLOT + 2] = 0xff;
        let what = String::from_utf8_lossy(name).into_owned();
        let overlay = over(&target, &Injection { what, blocks: vec![(at, bytes)] });
        let device: Arc<dyn BlockDevice> = overlay.clone();
        let found = lines(&check(device.clone()).unwrap());
        assert!(found.contains("f2fs.directory.hash: "), "{found}");
        let done = plan(&device, Scope::All).unwrap();
        assert_eq!(done.after.count(), 0, "{}", lines(&done.after));
        apply(&done, &device);
        assert!(overlay.read_at(at, 4096).unwrap()[..] == right[..]);
        fsck(&target, &overlay).unwrap();
    }
}

/// A count of links that is too high, where all directories are whole, is no lost name: with other
/// accounting beside it, it is set without losses.
#[test]
fn a_count_of_links_that_is_too_high_is_set() {
    const LINKS_AT: usize = 12;
    for arguments in [&[][..], &["-O", "extra_attr,inode_checksum"]] {
        let target = Target::new(arguments);
        let (_, at) = target
            .inode_of_each_kind()
            .into_iter()
            .find(|(what, _)| what.starts_with("type 0o10") && what.contains("nodes true"))
            .unwrap();
        let mut bytes = target.read(at);
        let links = bytes[LINKS_AT];
        bytes[LINKS_AT..LINKS_AT + 4].copy_from_slice(&77_u32.to_le_bytes());
        // i_ext, which is accounting, too.
        bytes[348..360].copy_from_slice(&[1, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0]);
        inode::seal(&mut bytes, target.layout());
        let injection = Injection { what: "links".into(), blocks: vec![(at, bytes)] };
        let overlay = over(&target, &injection);
        let device: Arc<dyn BlockDevice> = overlay.clone();
        let found = lines(&check(device.clone()).unwrap());
        let count = format!("(77 stored, {links} computed)");
        assert!(found.contains("f2fs.inode.links: ") && found.contains(&count), "{found}");
        let done = plan(&device, Scope::Accounting).unwrap();
        assert!(!done.is_refused && done.after.count() == 0, "{}", lines(&done.after));
        assert_eq!(done.steps.losing().count(), 0, "{:?}", done.steps.kept());
        apply(&done, &device);
        assert_eq!(check(device.clone()).unwrap().count(), 0);
        fsck(&target, &overlay).unwrap();
    }
}
