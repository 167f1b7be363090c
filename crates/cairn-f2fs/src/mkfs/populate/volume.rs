//! [`Volume`]: the geometry of the volume, and the segments of its logs.

use cairn_vfs::new_tree::TreeError;

use super::super::error::Error;
use super::super::features::Choice;
use super::super::geometry::Geometry;
use super::super::identity::Identity;
use super::super::options::MkfsOptions;
use super::super::quota;
use super::super::super_block;
use super::error::PopulateResult;
use super::places::Places;
use crate::format::units::{BLOCK_BYTES, BLOCKS_PER_SEGMENT, SEGMENT_BYTES, SegNo};
use crate::format::{BlockAddr, Layout, Log, Superblock};

/// The order of the logs on the volume.
const ORDER: [Log; Log::COUNT] =
    [Log::HotNode, Log::WarmNode, Log::ColdNode, Log::HotData, Log::WarmData, Log::ColdData];

/// A planned volume.
pub(super) struct Volume {
    pub(super) geometry: Geometry,
    pub(super) superblock: Superblock,
    pub(super) layout: Layout,
    /// The first segment of each log. Its other segments follow.
    pub(super) logs: [SegNo; Log::COUNT],
}

impl Volume {
    /// Plans a volume on a device of `bytes`.
    pub(super) fn new(
        geometry: Geometry,
        options: &MkfsOptions,
        choice: &Choice,
        identity: &Identity,
        sector: u32,
        bytes: u64,
        places: &Places,
    ) -> PopulateResult<Self> {
        let label = options.label.as_deref();
        let superblock = super_block::build(
            &geometry,
            (choice, quota::inodes(&choice.owners, places.first_quota)),
            identity,
            label,
            sector,
            &[],
        )?;
        let layout = Layout::new(&superblock, bytes).expect("mkfs makes only what can be opened");
        check_room(&geometry, &layout, places)?;
        let mut logs = [SegNo(0); Log::COUNT];
        let mut next = 0;
        for log in ORDER {
            *log.of_mut(&mut logs) = SegNo(next as u32);
            next += whole_sections(&geometry, places.segments(log));
        }
        Ok(Self { geometry, superblock, layout, logs })
    }

    /// The address of a block of a log.
    pub(super) fn address(&self, log: Log, at: u64) -> BlockAddr {
        let first = self.layout.address(*log.of(&self.logs), 0);
        BlockAddr(first.get() + at as u32)
    }

    /// The segment of a log that it goes on in.
    pub(super) fn last_segment(&self, log: Log, places: &Places) -> SegNo {
        SegNo(log.of(&self.logs).get() + (places.segments(log) - 1) as u32)
    }
}

fn whole_sections(geometry: &Geometry, segments: u64) -> u64 {
    segments.next_multiple_of(geometry.segs_per_sec.into())
}

/// Blocks that a volume lacks for the tree and `free` more blocks.
fn missing(geometry: &Geometry, places: &Places, free: u64) -> u64 {
    let blocks = (places.all_blocks() + free).saturating_sub(geometry.user_blocks);
    let segments: u64 =
        ORDER.iter().map(|log| whole_sections(geometry, places.segments(*log))).sum();
    let segments = segments.saturating_sub(geometry.main_segments.into());
    blocks.max(segments * u64::from(BLOCKS_PER_SEGMENT))
}

fn check_room(geometry: &Geometry, layout: &Layout, places: &Places) -> Result<(), TreeError> {
    let missing = missing(geometry, places, 0);
    if missing > 0 {
        let needed = (geometry.user_blocks + missing) * BLOCK_BYTES;
        return Err(TreeError::NoSpace { needed, available: geometry.user_blocks * BLOCK_BYTES });
    }
    // A number stays free: the checkpoint names the next one.
    if places.next_nid >= layout.max_nid().into() {
        let available = layout.max_nid().into();
        return Err(TreeError::NoNodes { needed: places.next_nid + 1, available });
    }
    Ok(())
}

/// The size of the smallest volume that holds the tree and `free` more bytes.
pub(super) fn required_bytes(
    options: &MkfsOptions,
    places: &Places,
    free: u64,
) -> PopulateResult<u64> {
    let free = free.div_ceil(BLOCK_BYTES);
    let mut segments = (places.all_blocks() + free) / u64::from(BLOCKS_PER_SEGMENT) + 1;
    let (needed, mut available) = (places.next_nid + 1, None);
    loop {
        let bytes = segments.saturating_mul(SEGMENT_BYTES);
        let more = match Geometry::of_bytes(bytes, options) {
            Err(Error::TooSmall { smallest, .. }) => {
                (smallest / SEGMENT_BYTES).saturating_sub(segments)
            }
            // Beyond some size a volume has no more numbers for nodes.
            Err(error) => {
                let lacking = available.map(|available| TreeError::NoNodes { needed, available });
                return Err(lacking.map_or_else(|| error.into(), Into::into));
            }
            Ok(geometry) => {
                let missing = missing(&geometry, places, free);
                available = Some(geometry.max_nid()).filter(|nodes| *nodes < needed);
                if missing == 0 && available.is_none() {
                    return Ok(bytes);
                }
                let for_nodes = if available.is_some() { segments / 64 } else { 0 };
                missing.div_ceil(BLOCKS_PER_SEGMENT.into()).max(for_nodes)
            }
        };
        segments = segments.saturating_add(more.max(1));
    }
}
