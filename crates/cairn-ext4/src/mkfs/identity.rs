//! UUID, hash seed and time of a new volume.

use std::time::UNIX_EPOCH;

use cairn_base::runtime::Runtime;
use cairn_vfs::types::Timestamp;
use uuid::Uuid;

use super::options::MkfsOptions;

/// What distinguishes two volumes of the same size.
pub(super) struct Identity {
    pub(super) uuid: Uuid,
    pub(super) hash_seed: Uuid,
    pub(super) now: Timestamp,
    pub(super) owner: (u32, u32),
}

impl Identity {
    pub(super) fn new(options: &MkfsOptions, runtime: &dyn Runtime) -> Self {
        let random = || {
            let bits = u128::from(runtime.random()) << 64 | u128::from(runtime.random());
            uuid::Builder::from_random_bytes(bits.to_le_bytes()).into_uuid()
        };
        let uuid = options.uuid.unwrap_or_else(random);
        let hash_seed = match (options.hash_seed, options.uuid) {
            (Some(seed), _) => seed,
            (None, Some(uuid)) => Uuid::new_v5(&uuid, b"directory hash seed"),
            (None, None) => random(),
        };
        let from_environment = || std::env::var("SOURCE_DATE_EPOCH").ok()?.trim().parse().ok();
        let now = match options.time.or_else(from_environment) {
            Some(seconds) => Timestamp { seconds, nanoseconds: 0 },
            None => {
                let since = runtime.now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Timestamp { seconds: i64::try_from(since.as_secs()).unwrap_or(0), nanoseconds: 0 }
            }
        };
        Self { uuid, hash_seed, now, owner: options.root_owner.unwrap_or((0, 0)) }
    }
}
