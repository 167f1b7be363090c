//! Nids that valid nodes have, whatever the NAT says.
//!
//! They are learnt once, from the summaries of the segments, while operations free nodes. So what
//! was freed before that is kept, too: those nids are free, although their nodes may have been
//! found.

use super::NidSet;
use crate::format::Nid;

/// The nids of the valid nodes, and a damaged entry that was found.
#[derive(Default)]
pub(super) struct WithNodes {
    nids: Nids,
    damaged: Option<Nid>,
}

enum Nids {
    Unknown { freed: NidSet },
    Known(NidSet),
}

impl Default for Nids {
    fn default() -> Self {
        Self::Unknown { freed: NidSet::default() }
    }
}

impl WithNodes {
    pub(super) const fn is_known(&self) -> bool {
        matches!(self.nids, Nids::Known(_))
    }

    /// Sets the nids of all nodes that were valid at some time since the mount.
    pub(super) fn learn(&mut self, mut found: NidSet) {
        if let Nids::Unknown { freed } = &self.nids {
            found.remove_all(freed);
            self.nids = Nids::Known(found);
        }
    }

    /// The entry of a nid says from now on rightly that it is free.
    pub(super) fn freed(&mut self, nid: Nid) {
        match &mut self.nids {
            Nids::Unknown { freed } => freed.insert(nid),
            Nids::Known(nids) => nids.remove(nid),
        }
    }

    /// Did a valid node have this nid, which was not freed since?
    pub(super) fn has(&self, nid: Nid) -> bool {
        matches!(&self.nids, Nids::Known(nids) if nids.contains(nid))
    }

    /// Notes a nid whose entry wrongly says that it is free.
    pub(super) fn note_damaged(&mut self, nid: Nid) {
        self.damaged = self.damaged.or(Some(nid));
    }

    /// One that was noted since the last call.
    pub(super) const fn take_damaged(&mut self) -> Option<Nid> {
        self.damaged.take()
    }
}
