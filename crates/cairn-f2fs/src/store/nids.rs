//! Numbers of new nodes.

use super::Store;
use crate::error::Result;
use crate::format::Nid;
use crate::nat::NidSet;

impl Store {
    /// Allocates a nid that no node has, also if the NAT is damaged. It belongs to the caller until
    /// it gets an address or is freed.
    ///
    /// # Errors
    /// No nid is free, or the device failed.
    pub(crate) fn allocate_nid(&self) -> Result<Nid> {
        self.nat.learn_nodes(|| {
            let mut found = NidSet::default();
            self.segments.nids_of_nodes(|nid| {
                if self.layout.is_nid(nid) {
                    found.insert(nid);
                }
            });
            found
        });
        self.nat.allocate()
    }
}
