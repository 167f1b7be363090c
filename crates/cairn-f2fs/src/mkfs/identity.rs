//! What no option or size decides: UUID, time and first checkpoint version of a new volume.

use std::time::UNIX_EPOCH;

use cairn_base::runtime::Runtime;
use cairn_vfs::Timestamp;
use uuid::Uuid;

use super::options::MkfsOptions;
use crate::format::checksum::crc32;

/// The values that differ between two volumes of the same size.
pub(super) struct Identity {
    pub(super) uuid: Uuid,
    pub(super) now: Timestamp,
    pub(super) owner: (u32, u32),
    /// Version of the first checkpoint.
    pub(super) version: u64,
    /// True if two runs give the same bytes.
    pub(super) reproducible: bool,
}

impl Identity {
    pub(super) fn new(options: &MkfsOptions, runtime: &dyn Runtime) -> Self {
        let from_environment = || std::env::var("SOURCE_DATE_EPOCH").ok()?.trim().parse().ok();
        let given = options.time.or_else(from_environment);
        let uuid = options.uuid.unwrap_or_else(|| {
            let bits = u128::from(runtime.random()) << 64 | u128::from(runtime.random());
            uuid::Builder::from_random_bytes(bits.to_le_bytes()).into_uuid()
        });
        let seconds = given.unwrap_or_else(|| {
            let since = runtime.now().duration_since(UNIX_EPOCH).unwrap_or_default();
            i64::try_from(since.as_secs()).unwrap_or(0)
        });
        let reproducible = options.uuid.is_some() && given.is_some();
        // The upper half of the version in footers is a checksum: versions must stay far below
        // 2^32.
        let version =
            if reproducible { crc32(!0, uuid.as_bytes()) } else { runtime.random() as u32 };
        Self {
            uuid,
            now: Timestamp { seconds, nanoseconds: 0 },
            owner: options.root_owner.unwrap_or((0, 0)),
            version: u64::from(version >> 1 | 1),
            reproducible,
        }
    }
}
