//! The description of a volume for `cairn info`, from its superblock and its latest checkpoint.

use crate::checkpoint::Loaded;
use crate::corrupt::Corrupt;
use crate::error::Error;
use crate::format::checkpoint::CheckpointFlags;
use crate::format::layout::Layout;
use crate::format::superblock::Superblock;
use crate::format::units::BLOCK_SIZE;

/// Facts of a volume.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Info {
    /// Label.
    pub label: String,
    /// UUID.
    pub uuid: String,
    /// Version of the format.
    pub version: String,
    /// Bytes per block.
    pub block_size: u32,
    /// Blocks in all.
    pub blocks: u64,
    /// Feature names.
    pub features: Vec<String>,
    /// How cairn opens it: "read-write", or the reason why not.
    pub access: String,
    /// Segments of the main area, of 2 MiB.
    pub main_segments: u32,
    /// Segments per section.
    pub segments_per_section: u32,
    /// Sections per zone.
    pub sections_per_zone: u32,
    /// Facts of the checkpoint, if there is a valid one.
    pub checkpoint: Option<CheckpointInfo>,
    /// "clean", "needs roll-forward", "not unmounted" (nothing was fsynced since the checkpoint),
    /// "needs fsck", "no valid checkpoint", "truncated" (the image is shorter than the volume; its
    /// checkpoint is not looked for).
    pub state: &'static str,
}

/// Facts of a checkpoint.
#[derive(Clone, Debug, serde::Serialize)]
pub struct CheckpointInfo {
    /// Version.
    pub version: u64,
    /// Flags, as stored.
    pub flags: String,
    /// Blocks that users may have.
    pub user_blocks: u64,
    /// Blocks in use.
    pub(crate) valid_blocks: u64,
    /// Nodes in use.
    pub(crate) valid_nodes: u32,
    /// Inodes in use.
    pub(crate) valid_inodes: u32,
    /// Free segments.
    pub(crate) free_segments: u32,
    /// Segments kept for cleaning.
    pub(crate) reserved_segments: u32,
    /// Segments that users never get.
    pub(crate) overprovision_segments: u32,
}

impl Info {
    /// Collects the facts. `replays` says that node blocks follow the checkpoint.
    #[must_use]
    pub fn of(
        superblock: &Superblock,
        layout: &Layout,
        loaded: Option<&Loaded>,
        replays: bool,
    ) -> Self {
        let refused = superblock.read_only_reason();
        Self {
            label: superblock.label(),
            uuid: uuid::Uuid::from_bytes(superblock.uuid).to_string(),
            version: format!("{}.{}", superblock.major_ver, superblock.minor_ver),
            block_size: BLOCK_SIZE as u32,
            blocks: superblock.block_count,
            features: superblock.features.names(),
            access: refused
                .map_or_else(|| "read-write".into(), |reason| format!("read-only: {reason}")),
            main_segments: layout.main_segments,
            segments_per_section: layout.segs_per_sec,
            sections_per_zone: layout.secs_per_zone,
            checkpoint: loaded.map(CheckpointInfo::of),
            state: state(loaded, replays),
        }
    }

    /// The facts of a volume whose end is missing.
    pub(crate) fn truncated(self, short: &Corrupt) -> Self {
        Self { state: "truncated", access: format!("none: {short}: copy it again, whole"), ..self }
    }

    /// The facts of a volume that is only read, for this reason.
    pub(crate) fn read_only(self, why: &str) -> Self {
        Self { access: format!("read-only: {why}"), ..self }
    }

    /// The facts of a volume that is not opened.
    pub(crate) fn refused(self, why: &Error) -> Self {
        let advice = match why {
            Error::Corrupt(Corrupt::NewestPack { is_restorable: true, .. }) => {
                "check and repair it"
            }
            _ => "copy out what is left",
        };
        let access = format!("none: {why}: {advice}");
        Self { access, ..self }
    }
}

impl CheckpointInfo {
    fn of(loaded: &Loaded) -> Self {
        let checkpoint = &loaded.checkpoint;
        Self {
            version: checkpoint.version,
            flags: format!("{:#x}", checkpoint.flags.bits()),
            user_blocks: checkpoint.user_block_count,
            valid_blocks: checkpoint.valid_block_count,
            valid_nodes: checkpoint.valid_node_count,
            valid_inodes: checkpoint.valid_inode_count,
            free_segments: checkpoint.free_segment_count,
            reserved_segments: checkpoint.rsvd_segment_count,
            overprovision_segments: checkpoint.overprov_segment_count,
        }
    }
}

fn state(loaded: Option<&Loaded>, replays: bool) -> &'static str {
    let Some(flags) = loaded.map(|loaded| loaded.checkpoint.flags) else {
        return "no valid checkpoint";
    };
    if flags.intersects(CheckpointFlags::ERROR | CheckpointFlags::FSCK) {
        "needs fsck"
    } else if replays {
        "needs roll-forward"
    } else if flags.contains(CheckpointFlags::UMOUNT) {
        "clean"
    } else {
        "not unmounted"
    }
}
