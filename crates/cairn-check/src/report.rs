//! [`Report`]: the result of a check.

use crate::exit::ExitStatus;
use crate::finding::Finding;
use crate::findings::Findings;
use crate::kind::{Kind, Severity};

/// What the volume holds, as the walk has counted it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Inodes in use.
    pub files: u64,
    /// Inodes that the volume has, or can have.
    pub files_most: u64,
    /// Directories among the inodes.
    pub directories: u64,
    /// Blocks in use.
    pub blocks: u64,
    /// Blocks of the volume.
    pub blocks_most: u64,
    /// Bytes of a block.
    pub block_size: u64,
    /// Files and directories that lie in several pieces.
    pub fragmented: u64,
}

/// The result of a check.
#[derive(Clone, Debug)]
pub struct Report {
    /// The first findings of each kind, by code and place.
    pub findings: Vec<Finding>,
    /// All findings of each kind, by code.
    pub counts: Vec<(&'static Kind, u64)>,
    /// What the volume holds.
    pub usage: Usage,
    /// What was recovered in memory before the check: the journal, fast commits, a node chain.
    /// Empty if the volume was unmounted cleanly.
    pub recovered: Vec<&'static str>,
    /// True if the user has ended the check before its end.
    pub cancelled: bool,
    /// Why no repair is possible, whatever was found: the format's repair refuses such volumes.
    pub no_repair: Option<String>,
    /// Who else uses the volume, by its own word, or did when it went down.
    pub in_use: Option<String>,
}

impl Report {
    /// The report of a walk.
    #[must_use]
    pub fn new(findings: Findings, usage: Usage) -> Self {
        let (findings, counts) = findings.into_lists();
        let (recovered, cancelled) = (Vec::new(), false);
        let (no_repair, in_use) = (None, None);
        Self { findings, counts, usage, recovered, cancelled, no_repair, in_use }
    }

    /// Adds what was found after the walk.
    pub fn add(&mut self, finding: Finding) {
        let code = finding.kind.code;
        match self.counts.binary_search_by(|(kind, _)| kind.code.cmp(code)) {
            Ok(at) => {
                if let Some((_, count)) = self.counts.get_mut(at) {
                    *count = count.saturating_add(1);
                }
            }
            Err(at) => self.counts.insert(at, (finding.kind, 1)),
        }
        let is_before = |other: &Finding| (other.kind.code, other.key()) <= (code, finding.key());
        let at = self.findings.partition_point(is_before);
        self.findings.insert(at, finding);
    }

    /// Number of all findings.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |all, (_, count)| all.saturating_add(*count))
    }

    /// True if both have found the same, as far as it was kept.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let counts = |report: &Self| -> Vec<_> {
            report.counts.iter().map(|(kind, count)| (kind.code, *count)).collect()
        };
        let keys = self.findings.iter().map(|found| (found.kind.code, found.key()));
        counts(self) == counts(other)
            && keys.eq(other.findings.iter().map(|found| (found.kind.code, found.key())))
    }

    /// The worst severity.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        self.counts.iter().map(|(kind, _)| kind.severity).max()
    }

    /// The exit status of a check without repair.
    #[must_use]
    pub fn exit_status(&self) -> ExitStatus {
        let found =
            if self.counts.is_empty() { ExitStatus::CLEAN } else { ExitStatus::ERRORS_LEFT };
        if self.cancelled { found | ExitStatus::CANCELLED } else { found }
    }
}
