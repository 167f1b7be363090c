//! [`Notes`]: what a walk tells a repair beside its findings.
//!
//! Memory: at most [`MOST`] findings and as many owners. A repair walks again if there are more.
//!
//! Locking: one lock, a leaf.

use std::collections::{BTreeMap, BTreeSet};

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_check::Finding;

use super::claims::Use;
use crate::format::Summary;
use crate::format::units::{BlockAddr, Nid};

/// Most findings that are kept.
const MOST: usize = 1 << 16;

/// The owners that summaries must name, by block.
pub(super) type Owners = BTreeMap<BlockAddr, (Use, Summary)>;

/// Findings, and owners that a summary does not name.
pub(super) struct Notes {
    kept: Mutex<(Vec<Finding>, Owners)>,
    /// Missing nodes are looked for.
    pub(super) seeks: bool,
    /// Names may be lost with what was mended in former rounds.
    pub(super) has_lost: bool,
    /// Inodes without a name that may be deleted ones.
    pub(super) freed: BTreeSet<Nid>,
}

impl Notes {
    pub(super) fn new(seeks: bool, has_lost: bool, freed: BTreeSet<Nid>) -> Self {
        Self { kept: Mutex::new(Rank::Leaf, (Vec::new(), Owners::new())), seeks, has_lost, freed }
    }

    /// Keeps a finding.
    pub(super) fn add(&self, finding: &Finding) {
        let mut notes = self.kept.lock();
        if notes.0.len() < MOST {
            notes.0.push(finding.clone());
        }
    }

    /// Keeps the owner that a summary must name.
    pub(super) fn add_owner(&self, addr: BlockAddr, what: Use, summary: Summary) {
        let mut notes = self.kept.lock();
        if notes.1.len() < MOST {
            notes.1.entry(addr).or_insert((what, summary));
        }
    }

    /// Takes what was kept.
    pub(super) fn take(&self) -> (Vec<Finding>, Owners) {
        std::mem::take(&mut self.kept.lock())
    }
}
