//! The features that the inodes of a volume show.

use super::RawVolume;
use crate::form::features;
use crate::format::units::Nid;
use crate::format::{Features, NodeFooter, inode};

/// Inodes that are asked, and numbers that are looked at for them.
const ASKED: usize = 256;
const NUMBERS: u32 = 4096;
/// Wrong checksums that show a wrong seed.
const FEWEST_WRONG: usize = 4;

impl RawVolume {
    /// The features that the first inodes of the volume show; those of the superblock if there are
    /// no inodes.
    pub(crate) fn proved_features(&self) -> Features {
        features::proved(&self.superblock, &self.layout, &self.first_inodes())
    }

    /// Have most of the first inodes wrong checksums? Then the seed is wrong, which is the UUID in
    /// the superblock.
    pub(crate) fn has_wrong_seed(&self) -> bool {
        let inodes = self.first_inodes();
        let sums = inodes.iter().filter_map(|(_, image)| inode::checksums(image, &self.layout));
        let (right, wrong): (Vec<_>, Vec<_>) = sums.partition(|(stored, sum)| stored == sum);
        wrong.len() >= FEWEST_WRONG && wrong.len() > right.len()
    }

    fn first_inodes(&self) -> Vec<(Nid, Vec<u8>)> {
        let end = self.layout.max_nid().min(NUMBERS);
        let numbers = (Nid::ROOT.get()..end).map(Nid);
        let nodes = numbers.filter_map(|nid| Some((nid, self.node(nid).ok()?.1.to_vec())));
        let inodes = nodes.filter(|(_, image)| NodeFooter::read(image).is_inode());
        inodes.take(ASKED).collect()
    }
}
