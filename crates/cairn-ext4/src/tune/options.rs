//! [`TuneOptions`]: what changes.

use uuid::Uuid;

/// Blocks that are reserved for root.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reserved {
    /// A part of the volume, at most 50.
    Percent(f64),
    /// Blocks.
    Blocks(u64),
}

/// What a mount does about damage (`s_errors`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnErrors {
    /// It goes on.
    Continue,
    /// It turns read-only.
    RemountReadOnly,
    /// The system stops.
    Panic,
}

/// What changes. By default nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TuneOptions {
    /// Label, at most 16 bytes.
    pub label: Option<String>,
    /// UUID.
    pub uuid: Option<Uuid>,
    /// Blocks reserved for root.
    pub reserved: Option<Reserved>,
    /// The user who may use the reserved blocks.
    pub reserved_uid: Option<u32>,
    /// The group that may use them.
    pub reserved_gid: Option<u32>,
    /// What a mount does about damage.
    pub errors: Option<OnErrors>,
    /// Mounts until a check is due; 0: any number.
    pub max_mounts: Option<u16>,
    /// Mounts since the last check.
    pub mounts: Option<u16>,
    /// Seconds until a check is due; 0: never.
    pub check_interval: Option<u32>,
    /// Time of the last check, in seconds since 1970.
    pub last_check: Option<i64>,
    /// Default mount options to add, or with `^` to remove.
    pub mount_options: Vec<String>,
    /// Blocks of a RAID's chunk on one disk.
    pub stride: Option<u16>,
    /// Blocks of a RAID's stripe over all data disks.
    pub stripe_width: Option<u32>,
    /// Features to add, or with `^` to remove, in tune2fs's words.
    pub features: Vec<String>,
    /// Bytes of the journal; it is made anew.
    pub journal_size: Option<u64>,
}
