//! [`CreatedVolume`]: what was made.

use uuid::Uuid;

use super::geometry::Geometry;
use super::identity::Identity;
use crate::format::Features;

/// The volume that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedVolume {
    /// UUID.
    pub(crate) uuid: Uuid,
    /// Blocks of 4096 bytes.
    pub(crate) blocks: u64,
    /// Blocks that users can have.
    pub user_blocks: u64,
    /// Feature names.
    pub(crate) features: Vec<String>,
}

impl CreatedVolume {
    pub(super) fn new(geometry: &Geometry, features: Features, identity: &Identity) -> Self {
        Self {
            uuid: identity.uuid,
            blocks: geometry.block_count,
            user_blocks: geometry.user_blocks,
            features: features.names(),
        }
    }
}
