//! Marks of encryption without a context. Where the directory is not encrypted either, the mark is
//! what is wrong; in an encrypted one it is the context.
//!
//! Locking: a leaf lock of the marks.

use std::collections::BTreeMap;

use cairn_base::Ino;
use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_check::{Finding, Findings, Place};

use super::kinds;

/// The inodes with such marks: the finding if the mark is wrong, and whether a name of theirs lies
/// in an encrypted directory.
pub(super) struct DoubtedMarks(Mutex<BTreeMap<u64, (Finding, bool)>>);

impl Default for DoubtedMarks {
    fn default() -> Self {
        Self(Mutex::new(Rank::Leaf, BTreeMap::new()))
    }
}

impl DoubtedMarks {
    /// An inode with the mark, and the finding that it is wrong.
    pub(super) fn add(&self, ino: Ino, finding: Finding) {
        self.0.lock().insert(ino.get(), (finding, false));
    }

    /// A name of the inode lies in an encrypted directory.
    pub(super) fn is_inside(&self, ino: Ino) {
        if let Some((_, is_inside)) = self.0.lock().get_mut(&ino.get()) {
            *is_inside = true;
        }
    }

    /// After all names are known: what is wrong with each of these inodes.
    pub(super) fn judge(&self, findings: &Findings) {
        let marks = std::mem::take(&mut *self.0.lock());
        for (number, (finding, is_inside)) in marks {
            findings.add(match is_inside {
                true => Finding::new(&kinds::ENCRYPTION_CONTEXT, Place::inode(number)),
                false => finding,
            });
        }
    }
}
