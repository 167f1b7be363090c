//! What bitmaps and counts say of files that are gone, and of names: inodes, parts of maps, or
//! blocks of directories may have lost a write.

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_check::{Finding, Kind, Report, Value};

use super::super::kinds;

/// Doubts of the first round. Later, when bitmaps and counts were written again, nothing shows
/// them.
pub(super) struct Left(Mutex<Vec<Finding>>);

/// A doubt, and what is found beside it as long as it stands.
const DOUBTS: [(&Kind, &[&Kind]); 2] = [
    (&kinds::BLOCK_BITMAP_LEFT, &[&kinds::BLOCK_BITMAP_USED]),
    (&kinds::INODE_OWNERS, &[&kinds::INODE_LINKS, &kinds::XATTR_REFERENCES]),
];

impl Default for Left {
    fn default() -> Self {
        Self(Mutex::new(Rank::Leaf, Vec::new()))
    }
}

impl Left {
    /// Keeps what the first round has found, and adds it to the report of a later one, as far as it
    /// still stands.
    pub(super) fn keep(&self, report: &mut Report, is_first: bool) {
        if is_first {
            let is_doubt = |found: &&Finding| beside(found.kind).is_some();
            *self.0.lock() = report.findings.iter().filter(is_doubt).cloned().collect();
            return;
        }
        let known = self.0.lock().clone();
        let stands = |doubt: &Finding| {
            let beside = beside(doubt.kind).unwrap_or_default();
            report.findings.iter().any(|found| {
                let is_kind = beside.iter().any(|kind| kind.code == found.kind.code);
                let place = |of: &Finding| (of.place.group, of.place.inode);
                is_kind && place(found) == place(doubt)
            })
        };
        let left: Vec<_> = known.into_iter().filter(stands).collect();
        left.into_iter().for_each(|doubt| report.add(doubt));
    }
}

fn beside(doubt: &Kind) -> Option<&'static [&'static Kind]> {
    DOUBTS.into_iter().find(|(kind, _)| kind.code == doubt.code).map(|(_, beside)| beside)
}

/// Inodes that the counts of the groups call used, and whose records are gone.
pub(super) fn forgotten(report: &Report) -> u64 {
    let code = kinds::GROUP_FREE_INODES.code;
    let counts = report.findings.iter().filter(|found| found.kind.code == code);
    let number = |value: &Option<Value>| value.as_ref().and_then(Value::number).unwrap_or(0);
    let gone = counts.map(|found| number(&found.computed).saturating_sub(number(&found.stored)));
    gone.fold(0, u64::saturating_add)
}
