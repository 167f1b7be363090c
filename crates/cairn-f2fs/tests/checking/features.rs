//! Feature bits of the superblock that are wrong, in one copy and in both, with right checksums: a
//! repair loses nothing, and until then readers deliver what was there or an error.

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_check::repair::Scope;
use cairn_f2fs::format::checksum::{MAGIC, crc32};

use crate::inject::Injection;
use crate::readers::View;
use crate::repair::{apply, damaged, plan};
use crate::types::Judge;
use crate::{check, lines};

const FEATURE_AT: usize = 1024 + 2180;
const CHECKSUM_AT: usize = 1024 + 3068;
const SB_CHECKSUM: u32 = 0x800;
/// The bits that have a meaning, and one that has none.
const BITS: u32 = 17;

fn change(judge: &Judge, bits: u32, copies: &[u64]) -> Injection {
    let blocks = copies.iter().map(|copy| {
        let at = copy * 4096;
        let mut bytes = judge.target.read(at);
        let place = &mut bytes[FEATURE_AT..FEATURE_AT + 4];
        let features = u32::from_le_bytes((&*place).try_into().unwrap()) ^ bits;
        place.copy_from_slice(&features.to_le_bytes());
        if features & !bits & SB_CHECKSUM != 0 {
            let sum = crc32(MAGIC, &bytes[1024..CHECKSUM_AT]);
            bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
        }
        (at, bytes)
    });
    let what = format!("bits {bits:#x} of {copies:?}");
    Injection { what, blocks: blocks.collect() }
}

/// Several bits: those of a word that was damaged.
const SEVERAL: [u32; 6] = [0x6e, 0x1911, 0x68, 0x860, 0x1069, 0x1900];

fn every_bit(arguments: &[&str]) {
    let judge = Judge::new(arguments);
    let sound: Arc<dyn BlockDevice> = Arc::new(judge.target.device.fork());
    let sound = View::of(&sound);
    let copies: [&[u64]; 3] = [&[0], &[1], &[0, 1]];
    let (mut wrong, mut repaired) = (String::new(), 0);
    let single = (0..BITS).flat_map(|bit| copies.map(|copies| (1 << bit, copies)));
    let several = SEVERAL.map(|bits| (bits, &[0, 1][..]));
    for (bits, copies) in single.chain(several) {
        let injection = change(&judge, bits, copies);
        let what = format!("{arguments:?}, {}", injection.what);
        let device: Arc<dyn BlockDevice> = Arc::new(damaged(&judge.target, &injection));
        let misread = View::of(&device).wrong(&sound);
        if !misread.is_empty() {
            wrong += &format!("{what}: misread: {}\n", misread[..misread.len().min(3)].join(", "));
        }
        let found = match check(device.clone()) {
            Ok(report) => lines(&report),
            Err(error) => format!("{error}\n"),
        };
        let first: String = found.lines().take(3).map(|line| format!("    {line}\n")).collect();
        for scope in [Scope::Accounting, Scope::All] {
            let device: Arc<dyn BlockDevice> = Arc::new(damaged(&judge.target, &injection));
            // A feature that Cairn does not write stays, and with it everything else.
            let Ok(done) = plan(&device, scope) else { continue };
            if done.is_refused {
                continue;
            }
            apply(&done, &device);
            let after = View::of(&device);
            let misread = after.wrong(&sound);
            if !misread.is_empty() {
                wrong += &format!("{what}, {scope:?}: {}\n{first}", misread[0]);
            }
            let is_whole = after.failed.is_empty();
            repaired += u32::from(done.after.count() == 0 && done.before.count() > 0);
            if done.after.count() == 0 && !is_whole {
                wrong += &format!("{what}, {scope:?}: {} lost\n{first}", after.failed.len());
            }
            let lost = done.steps.losing().filter(|step| step.loss.is_some());
            let lost: Vec<_> = lost.filter(|one| !one.kind.code.contains("superblock")).collect();
            if !lost.is_empty() {
                wrong +=
                    &format!("{what}, {scope:?}: {} losses: {:?}\n{first}", lost.len(), lost[0]);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(repaired > 40, "{repaired}");
}

#[test]
fn no_feature_bit_costs_a_file() {
    every_bit(&[]);
}

#[test]
fn no_feature_bit_costs_a_file_with_extra_attributes() {
    every_bit(&["-O", "extra_attr,inode_checksum,inode_crtime,sb_checksum"]);
}

#[test]
fn no_feature_bit_costs_a_file_with_flexible_attributes() {
    every_bit(&["-O", "extra_attr,flexible_inline_xattr,project_quota,quota,lost_found"]);
}

/// No reader reads what is marked as encrypted without a context that names its key.
#[test]
fn a_mark_of_encryption_without_a_context_is_removed() {
    let judge = Judge::new(&["-O", "encrypt"]);
    for name in ["pointers", "nodes", "inline"] {
        let injection = judge.change(name, &|bytes| bytes[2] |= 4);
        let device: Arc<dyn BlockDevice> = Arc::new(damaged(&judge.target, &injection));
        let found = lines(&check(device).unwrap());
        assert!(found.contains("f2fs.inode.field: "), "{name}:\n{found}");
        let (tree, lost) = judge.repair(&injection, Scope::All);
        assert!(tree.unwrap() == judge.sound && lost.len() == 1, "{name}: {lost:?}");
    }
}
