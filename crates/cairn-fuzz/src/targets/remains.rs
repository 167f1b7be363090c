//! Targets that read volumes which need not mount: single structures, logs, and rescues.

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::runtime::simulated::Simulated;
use cairn_block::BlockDevice;
use cairn_block::wrap::ReadOnly;
use cairn_check::Fields;
use cairn_check::salvage::{Contents, Found, Loss, Receiver, Salvage};
use cairn_ext4::SuperblockChoice;

use crate::base::{self, ALL, Part, Volume, shared};
use crate::records::Input;

/// Most deleted inodes that are restored.
const RESTORED: usize = 50;

/// The volume of an input, on a device that refuses writes.
fn volume(input: &Input) -> (bool, Arc<dyn BlockDevice>) {
    let base = base::of(input, ALL);
    let device = ReadOnly::new(shared(&base.changed(input, Part::All)));
    (matches!(base.volume, Volume::Ext4(_)), Arc::new(device))
}

fn ext4_choice(variant: u8) -> SuperblockChoice {
    match variant % 8 {
        6 => SuperblockChoice::Block(8193),
        7 => SuperblockChoice::Group(1),
        _ => SuperblockChoice::Best,
    }
}

fn f2fs_choice(variant: u8) -> cairn_f2fs::Choice {
    let number = u64::from(variant % 8);
    cairn_f2fs::Choice {
        superblock: number.checked_sub(6),
        pack: (number % 4 == 3).then_some(1 + variant / 128),
    }
}

fn shown<E: std::fmt::Display>(found: Result<Fields, E>) {
    match found {
        Ok(fields) => assert!(!format!("{fields:?}").is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Shows structures, each by itself, and the log.
pub(super) fn dump(bytes: &[u8]) {
    let input = Input::decode(bytes);
    let (is_ext4, device) = volume(&input);
    let (number, which) = (input.seed, input.options % 16);
    let inode = (number % 64).to_string().into_bytes();
    if is_ext4 {
        use cairn_ext4::dump::{What, dump, show_journal};
        let choice = ext4_choice(input.variant);
        let what = match which {
            0..=2 => What::Inode(inode),
            3..=5 => What::Extents(inode),
            6..=8 => What::Htree(inode),
            9 | 10 => What::Xattrs(inode),
            11..=13 => What::Block(u64::from(number) % 20_000),
            14 => What::Groups(None),
            _ => What::Inode(b"/dir/../file".to_vec()),
        };
        shown(dump(device.clone(), choice, &What::Superblock));
        shown(dump(device.clone(), choice, &what));
        shown(show_journal(device, choice));
    } else {
        use cairn_f2fs::dump::{What, dump, show_journal};
        let choice = f2fs_choice(input.variant);
        let what = match which {
            0..=2 => What::Inode(inode),
            3..=5 => What::Nodes(inode),
            6 | 7 => What::Xattrs(inode),
            8 => What::Nat(number % 2000),
            9 => What::Sit(number % 64),
            10 => What::Segments,
            11 => What::Summary(number % 64),
            12..=14 => What::Block(u64::from(number) % 20_000),
            _ => What::Inode(b"/dir/../file".to_vec()),
        };
        shown(dump(device.clone(), choice, &What::Superblock));
        shown(dump(device.clone(), choice, &What::Checkpoint));
        shown(dump(device.clone(), choice, &what));
        shown(show_journal(device, choice));
    }
}

/// Takes what a rescue finds, and looks at what a host would get.
struct Host;

/// A path that stays in its directory, with names that a host has.
fn is_safe(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').all(|name| {
        let is_name = !matches!(name, b"" | b"." | b"..") && !name.contains(&0);
        is_name && name.len() <= 255
    })
}

impl Receiver for Host {
    fn found(&mut self, file: &Found, contents: &mut dyn Contents) -> bool {
        assert!(is_safe(&file.path), "{:?}", file.path);
        let faults = contents.copy(&mut |offset, part| {
            let end = offset.checked_add(part.len() as u64);
            assert!(end.is_some_and(|end| end <= file.size), "bytes behind the end");
            true
        });
        assert!(faults.iter().all(|fault| !fault.is_empty()));
        true
    }

    fn linked(&mut self, path: &[u8], _: u64, first: &[u8]) -> bool {
        assert!(is_safe(path) && is_safe(first), "{path:?} {first:?}");
        true
    }

    fn lost(&mut self, loss: Loss) -> bool {
        assert!(!loss.what.is_empty());
        true
    }

    fn progress(&mut self, _: &'static str, _: u64, _: u64) -> bool {
        true
    }
}

/// Rescues everything, or lists deleted inodes and restores them.
pub(super) fn rescue(bytes: &[u8]) {
    let input = Input::decode(bytes);
    let (is_ext4, device) = volume(&input);
    let opened = match is_ext4 {
        true => {
            let runtime: Arc<dyn Runtime> = Simulated::new(1);
            let opened = cairn_ext4::rescue::open(device, ext4_choice(input.variant), &runtime);
            opened.map_err(|error| error.to_string())
        }
        false => cairn_f2fs::rescue::open(device, f2fs_choice(input.variant))
            .map_err(|error| error.to_string()),
    };
    match opened {
        Ok(mut volume) => save(&mut *volume, input.options),
        Err(error) => assert!(!error.is_empty()),
    }
}

fn save(volume: &mut dyn Salvage, options: u8) {
    assert!(volume.notes().iter().all(|note| !note.is_empty()));
    if options.is_multiple_of(2) {
        volume.tree(&mut Host);
        return;
    }
    let list = volume.deleted(&mut Host);
    for one in list.iter().take(RESTORED) {
        let path = one.path.clone().unwrap_or_else(|| b"lost/file".to_vec());
        assert!(is_safe(&path), "{path:?}");
        assert!(one.free <= one.blocks, "{} of {}", one.free, one.blocks);
        volume.restore(one, &path, &mut Host);
    }
}
