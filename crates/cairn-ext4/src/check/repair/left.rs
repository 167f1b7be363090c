//! What bitmaps and counts say of files that are gone: their inodes, or parts of their maps, may have
//! lost a write.

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_check::{Finding, Report, Value};

use super::super::kinds;

/// Blocks of no file that were found in the first round. Later, when bitmaps and counts were
/// written again, nothing shows them.
pub(super) struct Left(Mutex<Vec<Finding>>);

impl Default for Left {
    fn default() -> Self {
        Self(Mutex::new(Rank::Leaf, Vec::new()))
    }
}

impl Left {
    /// Keeps what the first round has found, and adds it to the report of a later one, as far as
    /// the blocks still are of no file.
    pub(super) fn keep(&self, report: &mut Report, is_first: bool) {
        let is = |finding: &&Finding, kind: &cairn_check::Kind| finding.kind.code == kind.code;
        let found = report.findings.iter().filter(|found| is(found, &kinds::BLOCK_BITMAP_LEFT));
        if is_first {
            *self.0.lock() = found.cloned().collect();
            return;
        }
        let used = report.findings.iter().filter(|found| is(found, &kinds::BLOCK_BITMAP_USED));
        let groups: Vec<_> = used.map(|found| found.place.group).collect();
        let known = self.0.lock().clone();
        let left = known.into_iter().filter(|left| groups.contains(&left.place.group));
        for finding in left {
            report.add(finding);
        }
    }
}

/// Inodes that the counts of the groups call used, and whose records are gone.
pub(super) fn forgotten(report: &Report) -> u64 {
    let code = kinds::GROUP_FREE_INODES.code;
    let counts = report.findings.iter().filter(|found| found.kind.code == code);
    let number = |value: &Option<Value>| value.as_ref().and_then(Value::number).unwrap_or(0);
    let gone = counts.map(|found| number(&found.computed).saturating_sub(number(&found.stored)));
    gone.fold(0, u64::saturating_add)
}
