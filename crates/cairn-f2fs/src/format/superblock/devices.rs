//! The devices of a volume on several.

use super::{DevicePart, Superblock};
use crate::format::units::SEGMENT_BYTES;

impl Superblock {
    /// Paths of the devices that the volume lies on, in order; none if it lies on a single one.
    #[must_use]
    pub(crate) fn device_paths(&self) -> Vec<String> {
        let named = self.devs.iter().take_while(|part| part.path[0] != 0);
        let text = |part: &DevicePart| {
            let bytes = part.path.split(|byte| *byte == 0).next().unwrap_or_default();
            String::from_utf8_lossy(bytes).into_owned()
        };
        named.map(text).collect()
    }

    /// Bytes that the volume uses of each of its devices, in order; none if it lies on a single
    /// one.
    #[must_use]
    pub(crate) fn device_lengths(&self) -> Vec<u64> {
        let before = std::iter::once(self.segment0_blkaddr.bytes()).chain(std::iter::repeat(0));
        let parts = self.device_segments().into_iter().zip(before);
        parts
            .map(|(own, before)| own.saturating_mul(SEGMENT_BYTES).saturating_add(before))
            .collect()
    }

    /// Segments on each of its devices, in order; none if it lies on a single one.
    #[must_use]
    pub(crate) fn device_segments(&self) -> Vec<u64> {
        let named = self.devs.iter().take_while(|part| part.path[0] != 0);
        named.map(|part| part.total_segments.into()).collect()
    }
}
