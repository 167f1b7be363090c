//! Link counts, references, and inodes that no directory has.

use cairn_base::{Ino, Pba};
use cairn_check::{Finding, Value};

use super::super::kinds;
use super::lost_found;
use super::mender::{DISPUTED, Mender};
use crate::error::Result;
use crate::format::inode::LINK_MAX;
use crate::format::xattr;

/// Offsets of the two halves of a value's count of references: `i_ctime` and `l_i_version`.
const REFERENCES_AT: [usize; 2] = [12, 36];

/// Mends counts. Inodes without a name get one first, which changes the counts.
pub(super) fn mend(mender: &mut Mender<'_>, findings: &[&Finding]) -> Result<()> {
    let unreachable = [kinds::INODE_UNREACHABLE.code, kinds::VALUE_UNREACHABLE.code];
    let is_lost = |finding: &&&Finding| unreachable.contains(&finding.kind.code);
    let lost: Vec<&Finding> = findings.iter().filter(is_lost).copied().collect();
    if !lost.is_empty() {
        return lost_found::mend(mender, &lost);
    }
    for finding in findings {
        let (Some(ino), Some(number)) = (finding.place.inode.map(Ino), number(finding)) else {
            continue;
        };
        let code = finding.kind.code;
        let is = |kind: &cairn_check::Kind| kind.code == code;
        if is(&kinds::XATTR_DISPUTED) {
            // The counts are findings of their own.
            mender.lose(finding, ino, DISPUTED);
            continue;
        }
        if is(&kinds::INODE_OWNERS) {
            mender.lose(
                finding,
                ino,
                "that it is of one owner: a name, or an inode, may be an old one",
            );
            continue;
        }
        let is_done = if is(&kinds::INODE_LINKS) {
            let links = u32::try_from(number).unwrap_or(u32::MAX);
            let links = if links >= LINK_MAX { 1 } else { links };
            mender.edit(ino, |record| record.links = links)?
        } else if is(&kinds::INODE_BLOCKS) {
            mender.edit(ino, |record| record.blocks_512 = number)?
        } else if is(&kinds::XATTR_REFERENCES) {
            references(mender, finding, number)?
        } else {
            mender.edit_bytes(ino, |bytes| {
                for (at, half) in REFERENCES_AT.into_iter().zip([number >> 32, number]) {
                    let word = u32::try_from(half & u64::from(u32::MAX)).unwrap_or(0);
                    let end = at.saturating_add(4);
                    if let Some(place) = bytes.get_mut(at..end) {
                        place.copy_from_slice(&word.to_le_bytes());
                    }
                }
            })?
        };
        if is_done {
            mender.step(finding);
        }
    }
    Ok(())
}

fn number(finding: &Finding) -> Option<u64> {
    match finding.computed {
        Some(Value::Number(number)) => Some(number),
        _ => None,
    }
}

fn references(mender: &Mender<'_>, finding: &Finding, count: u64) -> Result<bool> {
    let (Some(block), Ok(count)) = (finding.place.block, u32::try_from(count)) else {
        return Ok(false);
    };
    let pba = Pba(block);
    let mut bytes = mender.read(pba)?;
    xattr::set_refcount(&mut bytes, count);
    xattr::seal_block(&mut bytes, pba, mender.state.layout.checksum);
    mender.write(pba, bytes)?;
    Ok(true)
}
