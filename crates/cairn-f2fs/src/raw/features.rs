//! The features that the inodes of a volume show.

use super::RawVolume;
use crate::form::features;
use crate::format::units::Nid;
use crate::format::{Features, NodeFooter};

/// Inodes that are asked, and numbers that are looked at for them.
const ASKED: usize = 256;
const NUMBERS: u32 = 4096;

impl RawVolume {
    /// The features that the first inodes of the volume show; those of the superblock if there are
    /// no inodes.
    pub(crate) fn proved_features(&self) -> Features {
        let end = self.layout.max_nid().min(NUMBERS);
        let numbers = (Nid::ROOT.get()..end).map(Nid);
        let nodes = numbers.filter_map(|nid| Some((nid, self.node(nid).ok()?.1.to_vec())));
        let inodes = nodes.filter(|(_, image)| NodeFooter::read(image).is_inode());
        let inodes: Vec<_> = inodes.take(ASKED).collect();
        features::proved(&self.superblock, &self.layout, &inodes)
    }
}
