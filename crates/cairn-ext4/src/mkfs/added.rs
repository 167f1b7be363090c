//! The groups that are added to a volume when it grows: bitmaps and inode tables, which nothing
//! refers to yet.

use std::sync::Arc;

use cairn_base::Pba;
use cairn_block::BlockDevice;

use super::groups;
use super::output::Output;
use super::plan::Plan;
use super::ranges::Ranges;
use crate::error::Result;
use crate::format::group_desc::{GroupDesc, GroupFlags};
use crate::format::layout::Layout;
use crate::format::superblock::Superblock;

/// Writes bitmaps and inode tables of all groups from `first` on, and zeros where superblocks and
/// descriptors will be. Returns the descriptors. Nothing is durable yet.
///
/// # Errors
/// The tables do not fit in the groups, or the device failed.
pub(crate) fn write(
    device: Arc<dyn BlockDevice>,
    superblock: &Superblock,
    layout: &Layout,
    first: u32,
) -> Result<Vec<GroupDesc>> {
    let nothing = GroupDesc {
        block_bitmap: Pba(0),
        inode_bitmap: Pba(0),
        inode_table: Pba(0),
        free_blocks: 0,
        free_inodes: 0,
        used_dirs: 0,
        itable_unused: 0,
        flags: GroupFlags::empty(),
        block_bitmap_csum: 0,
        inode_bitmap_csum: 0,
    };
    let mut plan = Plan {
        superblock: superblock.clone(),
        layout: *layout,
        used: Ranges::default(),
        descs: vec![nothing; first as usize],
        journal_blocks: 0,
        used_inodes: 0,
    };
    plan.place_tables_from(first)?;
    let mut output = Output::new(device, layout.block_size);
    for group in first..layout.groups {
        let base = layout.base_metadata(group);
        if base > 0 {
            output.zeros(layout.group_first_block(group), base.into())?;
        }
        let table = plan.descs[group as usize].inode_table;
        output.zeros(table, layout.inode_table_blocks().into())?;
    }
    // Requests of one batch have no order.
    output.send()?;
    for group in first..layout.groups {
        groups::block_bitmap(&mut plan, &mut output, group)?;
        groups::inode_bitmap(&mut plan, &mut output, group)?;
    }
    output.send()?;
    Ok(plan.descs.split_off(first as usize))
}
