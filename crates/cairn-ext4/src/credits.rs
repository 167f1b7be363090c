//! Journal credits: how many metadata blocks each kind of operation may change.

use crate::features_in_use;
use crate::format::layout::Layout;

/// Upper bounds, in blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credits {
    /// One inode record, and the orphan list's link in it.
    pub attributes: u32,
    /// Adding or removing an orphan record: superblock or orphan block, and a neighbour in the
    /// list.
    pub orphan: u32,
    /// Mapping one allocated extent: bitmaps and descriptors of its blocks, blocks of the map with
    /// their splits, the inode.
    pub map_extent: u32,
    /// One step of freeing blocks.
    pub remove_step: u32,
    /// Adding a name with a new inode: allocation, directory splits, attributes.
    pub create: u32,
    /// Adding a name.
    pub link: u32,
    /// Removing a name.
    pub unlink: u32,
    /// Changing two names in two directories.
    pub rename: u32,
    /// Freeing an inode number and its attribute block.
    pub free_inode: u32,
    /// Setting one extended attribute.
    pub xattr: u32,
    /// Moving extents of one file up or down.
    pub shift: u32,
}

impl Credits {
    /// The credits of a volume. They hold for all depths of maps, and are small enough that several
    /// operations fit the smallest journal.
    #[must_use]
    pub(crate) const fn for_layout(layout: &Layout) -> Self {
        // To allocate or free a block changes its bitmap and its group's descriptor.
        let block = 2;
        // An extent tree of depth 5 that splits at each level: the node, its new half, and the
        // allocation of that.
        let tree = 5 * (2 + block) + 3;
        // The blocks that one insertion changes or appends (see `dir::ADD_BLOCKS`), and the
        // allocation of the appended ones.
        let directory = crate::dir::ADD_BLOCKS + crate::dir::ADD_APPENDS * block;
        // The inode, and the superblock if it may get a feature with it.
        let attributes = if features_in_use::may_come(&layout.features) { 2 } else { 1 };
        let orphan = 2;
        let xattr = 2 * (1 + block) + attributes + 1;
        Self {
            attributes,
            orphan,
            map_extent: 2 * block + tree + attributes,
            remove_step: tree + 3 * block + attributes + orphan,
            create: 3 + directory + tree + 2 * attributes + orphan + xattr,
            link: directory + tree + 2 * attributes + orphan,
            unlink: 2 + 2 * attributes + orphan,
            rename: 2 * (directory + tree) + 4 * attributes + orphan + 4,
            free_inode: 2 + attributes + orphan + 1 + block,
            xattr,
            shift: 2 * tree + attributes,
        }
    }
}
