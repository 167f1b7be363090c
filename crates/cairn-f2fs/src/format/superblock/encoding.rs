//! The encoding of names without case, and what else keeps Cairn from writing a volume.

use super::Superblock;
use crate::format::features::Features;

/// `s_encoding` of UTF-8, whose letters fold as Unicode 12.1 says.
pub(crate) const UTF8: u16 = 1;
/// `s_encoding_flags`: names that are no valid text are refused.
pub(crate) const STRICT: u16 = 1;

impl Superblock {
    /// Why the volume is read-only, if the superblock is the reason.
    #[must_use]
    pub(crate) fn read_only_reason(&self) -> Option<String> {
        self.features.read_only_reason().or_else(|| {
            let is_unknown = self.features.contains(Features::CASEFOLD) && self.s_encoding != UTF8;
            is_unknown.then(|| "the encoding of names without case is not known".to_owned())
        })
    }
}
