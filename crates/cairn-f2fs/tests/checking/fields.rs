//! The fields of each structure: names, offsets and widths in bytes.

/// A field: its name, its offset, its width.
pub type Field = (&'static str, usize, usize);

/// In the superblock.
pub const SUPERBLOCK: &[Field] = &[
    ("magic", 0, 4),
    ("log_sectorsize", 8, 4),
    ("log_sectors_per_block", 12, 4),
    ("log_blocksize", 16, 4),
    ("log_blocks_per_seg", 20, 4),
    ("segs_per_sec", 24, 4),
    ("secs_per_zone", 28, 4),
    ("block_count", 36, 8),
    ("section_count", 44, 4),
    ("segment_count", 48, 4),
    ("segment_count_ckpt", 52, 4),
    ("segment_count_sit", 56, 4),
    ("segment_count_nat", 60, 4),
    ("segment_count_ssa", 64, 4),
    ("segment_count_main", 68, 4),
    ("segment0_blkaddr", 72, 4),
    ("cp_blkaddr", 76, 4),
    ("sit_blkaddr", 80, 4),
    ("nat_blkaddr", 84, 4),
    ("ssa_blkaddr", 88, 4),
    ("main_blkaddr", 92, 4),
    ("root_ino", 96, 4),
    ("node_ino", 100, 4),
    ("meta_ino", 104, 4),
    ("extension_count", 1148, 4),
    ("hot_ext_count", 2757, 1),
    ("cp_payload", 1664, 4),
    ("feature", 2180, 4),
];

/// In the first and last block of a checkpoint pack.
pub const CHECKPOINT: &[Field] = &[
    ("checkpoint_ver", 0, 8),
    ("user_block_count", 8, 8),
    ("valid_block_count", 16, 8),
    ("rsvd_segment_count", 24, 4),
    ("overprov_segment_count", 28, 4),
    ("free_segment_count", 32, 4),
    ("cur_node_segno[0]", 36, 4),
    ("cur_node_segno[1]", 40, 4),
    ("cur_node_segno[2]", 44, 4),
    ("cur_node_blkoff[0]", 68, 2),
    ("cur_node_blkoff[1]", 70, 2),
    ("cur_node_blkoff[2]", 72, 2),
    ("cur_data_segno[0]", 84, 4),
    ("cur_data_segno[1]", 88, 4),
    ("cur_data_segno[2]", 92, 4),
    ("cur_data_blkoff[0]", 116, 2),
    ("cur_data_blkoff[1]", 118, 2),
    ("cur_data_blkoff[2]", 120, 2),
    ("ckpt_flags", 132, 4),
    ("cp_pack_total_block_count", 136, 4),
    ("cp_pack_start_sum", 140, 4),
    ("valid_node_count", 144, 4),
    ("valid_inode_count", 148, 4),
    ("next_free_nid", 152, 4),
    ("sit_ver_bitmap_bytesize", 156, 4),
    ("nat_ver_bitmap_bytesize", 160, 4),
    ("elapsed_time", 168, 8),
    ("alloc_type[0]", 176, 1),
    ("alloc_type[4]", 180, 1),
    ("sit_bitmap", 192, 1),
    ("nat_bitmap", 256, 1),
];

/// In an entry of the NAT.
pub const NAT: &[Field] = &[("version", 0, 1), ("ino", 1, 4), ("block_addr", 5, 4)];

/// In an entry of the SIT.
pub const SIT: &[Field] =
    &[("vblocks", 0, 2), ("valid_map", 2, 1), ("valid_map[40]", 42, 1), ("mtime", 66, 8)];

/// In an entry of a summary block.
pub const SUMMARY: &[Field] = &[("nid", 0, 4), ("version", 4, 1), ("ofs_in_node", 5, 2)];

/// In the footer of a summary block.
pub const SUMMARY_FOOTER: &[Field] = &[("entry_type", 4091, 1), ("check_sum", 4092, 4)];

/// In the footer of a node.
pub const FOOTER: &[Field] = &[
    ("nid", 4072, 4),
    ("ino", 4076, 4),
    ("flag", 4080, 4),
    ("cp_ver", 4084, 8),
    ("next_blkaddr", 4092, 4),
];

/// In an inode.
pub const INODE: &[Field] = &[
    ("i_mode", 0, 2),
    ("i_advise", 2, 1),
    ("i_inline", 3, 1),
    ("i_links", 12, 4),
    ("i_size", 16, 8),
    ("i_blocks", 24, 8),
    ("i_current_depth", 72, 4),
    ("i_xattr_nid", 76, 4),
    ("i_flags", 80, 4),
    ("i_pino", 84, 4),
    ("i_namelen", 88, 4),
    ("i_dir_level", 347, 1),
    ("i_ext.fofs", 348, 4),
    ("i_ext.blk_addr", 352, 4),
    ("i_ext.len", 356, 4),
    ("i_addr[0]", 360, 4),
    ("i_addr[1]", 364, 4),
    ("i_addr[2]", 368, 4),
    ("i_addr[9]", 396, 4),
    ("i_addr[10]", 400, 4),
    ("i_addr[100]", 760, 4),
    ("inline xattr header", 3852, 4),
    ("inline xattr entry", 3876, 4),
    ("i_nid[0]", 4052, 4),
    ("i_nid[1]", 4056, 4),
    ("i_nid[2]", 4060, 4),
    ("i_nid[4]", 4068, 4),
];

/// In a direct, indirect or attribute node.
pub const NODE: &[Field] = &[
    ("pointer 0", 0, 4),
    ("pointer 1", 4, 4),
    ("pointer 6", 24, 4),
    ("pointer 7", 28, 4),
    ("pointer 500", 2000, 4),
    ("pointer 1017", 4068, 4),
];

/// In a directory block: the bitmap, an entry, a name.
pub const DENTRIES: &[Field] = &[
    ("bitmap", 0, 1),
    ("bitmap[9]", 9, 1),
    ("bitmap[26]", 26, 1),
    ("hash", 30, 4),
    ("ino", 34, 4),
    ("name_len", 38, 2),
    ("file_type", 40, 1),
    ("name", 2384, 1),
];

/// Bytes of an entry and of a piece of a name in a directory block.
pub const DENTRY: usize = 11;
pub const SLOT: usize = 8;
