//! The kinds of defects that the check finds. `docs/check.md` lists them.

cairn_check::kinds! {
    /// The first superblock or its descriptors are damaged.
    SUPERBLOCK_DAMAGED = "ext4.superblock.damaged", Accounting,
        "The first superblock or its descriptors are damaged, and a backup was read instead.",
        "The backup is copied over the first one.";
    /// The checksum of the only superblock.
    SUPERBLOCK_CHECKSUM = "ext4.superblock.checksum", Losing,
        "The checksum of the superblock does not match its bytes, and there is no backup.",
        "The superblock is taken as it is, and the checksum is computed.";
    /// The revision hides the features.
    SUPERBLOCK_REVISION = "ext4.superblock.revision", Losing,
        "The superblock has the revision 0, which has no features, and feature flags.",
        "The revision is set to 1, and the flags and the size of inodes are taken as they are.";
    /// One bit of the superblock.
    SUPERBLOCK_BIT = "ext4.superblock.bit", Accounting,
        "The superblock has one wrong bit or no magic number; all else shows what is right.",
        "The bit, or the number, is corrected.";
    /// A backup of the superblock is damaged.
    SUPERBLOCK_BACKUP = "ext4.superblock.backup", Accounting,
        "A backup of the superblock is damaged or describes another volume.",
        "The first superblock is copied over it.";
    /// A field says what the rest of the volume says otherwise.
    SUPERBLOCK_CONTRADICTED = "ext4.superblock.contradicted", Accounting,
        "A field of the superblock contradicts the rest of the volume: another value is used.",
        "The field gets the value that a backup has, or that the rest of the volume implies.";
    /// A field of the superblock.
    SUPERBLOCK_FIELD = "ext4.superblock.field", Accounting,
        "A field of the superblock has an impossible value.",
        "The field gets the value that the rest of the volume implies.";
    /// The total of free blocks.
    SUPERBLOCK_FREE_BLOCKS = "ext4.superblock.free_blocks", Accounting,
        "The superblock's number of free blocks is not that of the volume.",
        "The number is set.";
    /// The total of free inodes.
    SUPERBLOCK_FREE_INODES = "ext4.superblock.free_inodes", Accounting,
        "The superblock's number of free inodes is not that of the volume.",
        "The number is set.";
    /// Recorded errors.
    SUPERBLOCK_ERRORS = "ext4.superblock.errors", Accounting,
        "The superblock records errors that were found on the volume while it was in use.",
        "The record is cleared after the repair.";
    /// The volume was left in use.
    SUPERBLOCK_UNCLEAN = "ext4.superblock.unclean", Accounting,
        "The volume is not marked clean: in use without a journal, or a tool asks for a check.",
        "It is marked as clean after the repair.";
    /// The checksum of the block of multiple-mount protection.
    MMP_CHECKSUM = "ext4.mmp.checksum", Accounting,
        "The block of multiple-mount protection has a wrong checksum; nobody uses the volume.",
        "The block is made anew.";
    /// The block of multiple-mount protection.
    MMP_INVALID = "ext4.mmp.invalid", Losing,
        "The block of multiple-mount protection is damaged: another computer may use the volume.",
        "The block is made anew: nobody uses the volume.";
    /// One bit of a structure.
    METADATA_BIT = "ext4.metadata.bit", Accounting,
        "A structure has one wrong bit, which its checksum tells.",
        "The bit is corrected.";
    /// The journal cannot be replayed.
    JOURNAL_REPLAY = "ext4.journal.replay", Losing,
        "The journal cannot be replayed, so the last changes before the crash are missing.",
        "What is intact of it is replayed, and the rest is lost.";
    /// The journal is found by a copy of its map.
    JOURNAL_INODE = "ext4.journal.inode", Accounting,
        "The inode of the journal is damaged, but the superblock has a copy of its block map.",
        "The inode gets the block map and the size of the copy.";
    /// One bit of a block of the journal.
    JOURNAL_BIT = "ext4.journal.bit", Accounting,
        "A block of the journal has one wrong bit, which its checksum tells.",
        "The bit is corrected.";
    /// Fields of the journal's superblock.
    JOURNAL_FIELD = "ext4.journal.field", Accounting,
        "A field of the journal's superblock is wrong; its checksum, its file or its log tells it.",
        "The field is set.";
    /// The journal is no journal.
    JOURNAL_INVALID = "ext4.journal.invalid", Accounting,
        "The inode that should hold the journal does not hold a valid one.",
        "A new, empty journal is made.";
    /// A structure cannot be read.
    DEVICE_READ = "ext4.device.read", Fatal,
        "The device cannot read a block of the volume's structures.",
        "Nothing: copy what can be read to another device first.";
    /// The checksum of a descriptor.
    GROUP_CHECKSUM = "ext4.group.checksum", Accounting,
        "The checksum of the group descriptor does not match its bytes.",
        "The group is counted again, and the checksum is computed.";
    /// A field of a descriptor contradicts the volume, and its backup or the bitmap does not.
    GROUP_CONTRADICTED = "ext4.group.contradicted", Accounting,
        "The group descriptor contradicts its backup, its inode bitmap, or where the root is.",
        "The place is that of the backup, or the one by which there is a root; all inodes of the \
            table are read.";
    /// The place of a bitmap or table.
    GROUP_PLACE = "ext4.group.place", Losing,
        "The group descriptor places a bitmap or an inode table where none can be.",
        "It gets its place of a backup, or a new one; then the files of a table are lost.";
    /// A descriptor that the log has right.
    GROUP_UNREPLAYED = "ext4.group.unreplayed", Accounting,
        "Linux refuses this group descriptor; the log, which was not replayed, has another one.",
        "The journal is replayed.";
    /// Structures over each other.
    GROUP_OVERLAP = "ext4.group.overlap", Losing,
        "A bitmap or an inode table lies over another structure of the volume.",
        "It gets its place of a backup, or a new one; then the files of a table are lost.";
    /// Flags of a group.
    GROUP_FLAGS = "ext4.group.flags", Accounting,
        "A group is marked as not initialised, although the features or its place forbid it.",
        "The marks are removed.";
    /// Free blocks of a group.
    GROUP_FREE_BLOCKS = "ext4.group.free_blocks", Accounting,
        "The group's number of free blocks is not that of its files.",
        "The number is set.";
    /// Free inodes of a group.
    GROUP_FREE_INODES = "ext4.group.free_inodes", Accounting,
        "The group's number of free inodes is not that of its inode table.",
        "The number is set.";
    /// Directories of a group.
    GROUP_DIRECTORIES = "ext4.group.directories", Accounting,
        "The group's number of directories is not that of its inode table.",
        "The number is set.";
    /// Unused part of an inode table.
    GROUP_UNUSED = "ext4.group.unused", Accounting,
        "The part of the inode table that is called unused has inodes in use, or is too large.",
        "The part is made smaller.";
    /// Checksum of a block bitmap.
    BLOCK_BITMAP_CHECKSUM = "ext4.block_bitmap.checksum", Accounting,
        "The checksum of the block bitmap does not match its bytes.",
        "The bitmap is made from the files, and the checksum is computed.";
    /// A used block that is marked free.
    BLOCK_BITMAP_FREE = "ext4.block_bitmap.free", Accounting,
        "Blocks are in use, but the bitmap calls them free: new data may overwrite them.",
        "The bits are set.";
    /// A free block that is marked used.
    BLOCK_BITMAP_USED = "ext4.block_bitmap.used", Accounting,
        "Blocks are marked as in use, but nothing uses them.",
        "The bits are cleared.";
    /// In use as the bitmap and the count of the group agree, and nobody's.
    BLOCK_BITMAP_LEFT = "ext4.block_bitmap.left", Losing,
        "Blocks of no file are in use by bitmap and count: an inode may have lost a write.",
        "They become free, with what they hold.";
    /// Bits beyond the end.
    BLOCK_BITMAP_PADDING = "ext4.block_bitmap.padding", Accounting,
        "Bits of the block bitmap beyond the end of the volume are clear.",
        "The bits are set.";
    /// Checksum of an inode bitmap.
    INODE_BITMAP_CHECKSUM = "ext4.inode_bitmap.checksum", Accounting,
        "The checksum of the inode bitmap does not match its bytes.",
        "The bitmap is made from the inode table, and the checksum is computed.";
    /// A used inode that is marked free.
    INODE_BITMAP_FREE = "ext4.inode_bitmap.free", Accounting,
        "Inodes are in use, but the bitmap calls them free: new files may overwrite them.",
        "The bits are set.";
    /// A free inode that is marked used.
    INODE_BITMAP_USED = "ext4.inode_bitmap.used", Accounting,
        "Inodes are marked as in use, but they are not.",
        "The bits are cleared.";
    /// Bits beyond the last inode.
    INODE_BITMAP_PADDING = "ext4.inode_bitmap.padding", Accounting,
        "Bits of the inode bitmap beyond the group's last inode are clear.",
        "The bits are set.";
    /// Checksum of an inode.
    INODE_CHECKSUM = "ext4.inode.checksum", Losing,
        "The checksum of the inode does not match its bytes.",
        "The inode is taken as it is, and the checksum is computed.";
    /// Extra fields.
    INODE_EXTRA_SIZE = "ext4.inode.extra_size", Losing,
        "The inode claims more fields than its record has room for.",
        "The number is set to the volume's usual one; attributes in the inode may be lost.";
    /// File type.
    INODE_MODE = "ext4.inode.mode", Losing,
        "The inode has no known file type.",
        "The inode is cleared.";
    /// A file type that contents and names contradict.
    INODE_TYPE = "ext4.inode.type", Accounting,
        "The mode has another file type than the contents of the inode and its names.",
        "The mode gets the type that contents and names agree on.";
    /// A file type that only the contents contradict.
    INODE_TYPE_UNPROVED = "ext4.inode.type_unproved", Losing,
        "The contents of the inode contradict the file type of its mode, and no name decides.",
        "The mode gets the type that the contents look like.";
    /// Deletion time.
    INODE_DELETED = "ext4.inode.deletion_time", Accounting,
        "An inode in use has a deletion time, or a deleted one has none.",
        "The deletion time is set or cleared.";
    /// Flags against features or file type.
    INODE_FLAGS = "ext4.inode.flags", Accounting,
        "The inode has a flag that its type or the features do not allow, or that it contradicts.",
        "The flag is cleared; the flags of the form and of encryption are set as they are proved.";
    /// Reserved inodes.
    INODE_RESERVED = "ext4.inode.reserved", Accounting,
        "A reserved inode has contents or fields that it cannot have.",
        "The fields are set; an inode without a use is cleared.";
    /// Reserved inodes with limits of users.
    INODE_RESERVED_QUOTA = "ext4.inode.reserved_quota", Losing,
        "An inode of quotas has a valid file of them, and the volume has no quotas.",
        "The inode is cleared.";
    /// The root.
    INODE_ROOT = "ext4.inode.root", Losing,
        "The root inode is no directory.",
        "It becomes a directory again; what has no name then goes to lost+found.";
    /// The resize inode.
    INODE_RESIZE = "ext4.inode.resize", Accounting,
        "The resize inode does not list the reserved descriptor blocks.",
        "The inode is made anew.";
    /// Encryption.
    ENCRYPTION_CONTEXT = "ext4.encryption.context", Losing,
        "The inode is encrypted, and has no valid context.",
        "The inode is cleared, because nothing can decrypt it.";
    /// A byte of a context.
    ENCRYPTION_BYTE = "ext4.encryption.byte", Accounting,
        "One byte of an encrypted inode's context is wrong, without which the inode has none.",
        "The byte is set.";
    /// A byte of a context that the directory shows.
    ENCRYPTION_INHERITED = "ext4.encryption.inherited", Accounting,
        "One byte of an encrypted inode's policy differs from its directory and all else in it.",
        "The byte is set.";
    /// A name in an encrypted directory.
    ENCRYPTION_NAME = "ext4.encryption.name", Losing,
        "A name in an encrypted directory leads to an inode that is not encrypted as it is.",
        "The name is removed; the inode gets one in lost+found.";
    /// The policy of an encrypted directory.
    ENCRYPTION_POLICY = "ext4.encryption.policy", Accounting,
        "The encrypted directory has another policy than all that lies in it, which agrees.",
        "The directory gets the policy of what lies in it.";
    /// The flag of encryption, without a context.
    ENCRYPTION_FLAG = "ext4.encryption.flag", Losing,
        "The inode is marked as encrypted, and has no context, so that nothing could decrypt it.",
        "The mark is removed; the contents stay as they are.";
    /// Size.
    INODE_SIZE = "ext4.inode.size", Accounting,
        "The size of the inode does not fit its contents.",
        "The size is set to that of the contents.";
    /// Size of a file.
    INODE_SIZE_UNPROVED = "ext4.inode.size_unproved", Losing,
        "Blocks of the file lie behind its end, or no file can have its size; either may be wrong.",
        "The size is set to that of the blocks, or the last ones go to where the size ends, if one \
            bit explains that; those that the inode does not count are removed.";
    /// Space in use.
    INODE_BLOCKS = "ext4.inode.blocks", Accounting,
        "The inode's number of blocks is not that of its block map.",
        "The number is set.";
    /// Fields that must be zero.
    INODE_FIELD = "ext4.inode.field", Accounting,
        "A field of the inode that must be zero is not.",
        "The field is set to zero.";
    /// A time far in the future.
    INODE_TIME = "ext4.inode.time", Accounting,
        "A time of the inode is in the years 2310 to 2378, and was probably one before 1970.",
        "The time is set to that before 1970.";
    /// More names, or more inodes with the attributes, than sound counts say.
    INODE_OWNERS = "ext4.inode.owners", Losing,
        "There are more names of an inode, or more inodes with its attributes, than are counted.",
        "The counts are set, although a name, or an inode, may be an old one.";
    /// Link count.
    INODE_LINKS = "ext4.inode.links", Accounting,
        "The link count of the inode is not the number of its names.",
        "The count is set.";
    /// No name.
    INODE_UNREACHABLE = "ext4.inode.unreachable", Accounting,
        "No directory below the root has a name for the inode.",
        "The inode gets a name in lost+found.";
    /// A symbolic link.
    SYMLINK_TARGET = "ext4.symlink.target", Losing,
        "The target of the symbolic link is missing or has another length than the inode says.",
        "The symbolic link is removed.";
    /// A device, a FIFO or a socket.
    SPECIAL_CONTENTS = "ext4.special.contents", Accounting,
        "A device node, FIFO or socket has a size, which it cannot have.",
        "The size is set to 0: there are no blocks.";
    /// An extent tree node.
    EXTENT_NODE = "ext4.extent.node", Losing,
        "A node of the extent tree is invalid.",
        "The node is cut off, and what it maps is lost.";
    /// Checksum of an extent tree node.
    EXTENT_CHECKSUM = "ext4.extent.checksum", Losing,
        "The checksum of a node of the extent tree does not match its bytes.",
        "The node is taken as it is, and the checksum is computed.";
    /// An extent out of order.
    EXTENT_ORDER = "ext4.extent.order", Losing,
        "Extents of the file overlap or are out of order.",
        "The later one is removed.";
    /// An extent that begins elsewhere than its neighbours leave room.
    EXTENT_START = "ext4.extent.start", Accounting,
        "An extent begins far from the only place that its neighbours and the size leave for it.",
        "It begins there.";
    /// One bit of a block map.
    MAP_BIT = "ext4.map.bit", Accounting,
        "One bit of the map or of i_file_acl is wrong: with it right, size, counts and bitmap fit.",
        "The bit is corrected.";
    /// One bit of a map, or the bitmap.
    MAP_DISPUTED = "ext4.map.disputed", Losing,
        "One bit of the map may be wrong, or the bitmap is an old one: with it right, all fits.",
        "The bit is corrected.";
    /// An index that does not name its child's first block.
    EXTENT_INDEX = "ext4.extent.index", Accounting,
        "An index of the extent tree does not name the first block of its child.",
        "The index is set.";
    /// A place outside the volume.
    MAP_RANGE = "ext4.map.range", Losing,
        "The block map of the file refers to blocks outside the volume.",
        "The blocks are removed from the map.";
    /// Blocks of structures.
    MAP_SYSTEM = "ext4.map.system", Losing,
        "The block map of the file refers to blocks of the volume's structures.",
        "What lies under a bitmap or a table is copied; other blocks are removed.";
    /// Blocks of two files.
    MAP_TWICE = "ext4.map.twice", Losing,
        "Blocks of the file belong to another file, too, or to the file twice.",
        "Each file gets a copy of the blocks.";
    /// Clusters out of line.
    MAP_CLUSTER = "ext4.map.cluster", Losing,
        "Blocks of the file do not lie at their place in a cluster.",
        "The blocks are removed from the map.";
    /// Holes or unwritten blocks where none may be.
    DIRECTORY_HOLE = "ext4.directory.hole", Losing,
        "The directory has a hole, or a block that was never written.",
        "The hole is filled with an empty block.";
    /// Checksum of a directory block.
    DIRECTORY_CHECKSUM = "ext4.directory.checksum", Losing,
        "The checksum of the directory block is wrong, and nothing else proves its names.",
        "The block is taken as it is, and the checksum is computed.";
    /// Checksum of a directory block that all else agrees with.
    DIRECTORY_CHECKSUM_ONLY = "ext4.directory.checksum_only", Accounting,
        "The checksum of a directory block is missing or wrong; all else agrees with its names.",
        "The checksum is computed.";
    /// The chain of entries.
    DIRECTORY_ENTRY = "ext4.directory.entry", Losing,
        "An entry of the directory is malformed.",
        "The entry is removed, and those behind it that cannot be found.";
    /// `.` and `..`.
    DIRECTORY_DOTS = "ext4.directory.dots", Accounting,
        "The first two entries of the directory are not `.` and `..` of it.",
        "The entries are made anew.";
    /// Wrong parent.
    DIRECTORY_PARENT = "ext4.directory.parent", Accounting,
        "`..` does not name the directory that holds this one.",
        "`..` is set.";
    /// A second name of a directory.
    DIRECTORY_LINKED = "ext4.directory.linked", Losing,
        "A directory has a second name, or the root or a reserved inode has one.",
        "The second name is removed.";
    /// Two entries of a name.
    DIRECTORY_DUPLICATE = "ext4.directory.duplicate", Losing,
        "Two entries of the directory have the same name.",
        "The second one gets another name.";
    /// Letters that no name can have.
    ENTRY_NAME = "ext4.entry.name", Losing,
        "A name contains a slash or a NUL, or is `.` or `..` at a wrong place.",
        "The letters are replaced, or the entry is removed.";
    /// An entry without an inode.
    ENTRY_TARGET = "ext4.entry.target", Losing,
        "A name refers to an inode that is not in use.",
        "The name is removed.";
    /// The type in an entry.
    ENTRY_TYPE = "ext4.entry.type", Accounting,
        "The file type in the entry is not that of the inode.",
        "The type is set.";
    /// The index root or a node.
    HTREE_NODE = "ext4.htree.node", Accounting,
        "The index of the directory is invalid.",
        "The index is made anew; where names ignore case, it is removed.";
    /// Names outside the hash range.
    HTREE_RANGE = "ext4.htree.range", Accounting,
        "A block of an indexed directory has names whose hashes do not belong there.",
        "The index is made anew; where names ignore case, it is removed.";
    /// Blocks that the index leaves out or names twice.
    HTREE_BLOCKS = "ext4.htree.blocks", Accounting,
        "The index of the directory leaves out a block, or refers to one twice.",
        "The index is made anew; where names ignore case, it is removed.";
    /// The container of attributes.
    XATTR_INVALID = "ext4.xattr.invalid", Losing,
        "The extended attributes of the inode are malformed, or overlap.",
        "Those that overlap are removed, or all in this place if their list is malformed.";
    /// The mark of the attributes in an inode.
    XATTR_MARK = "ext4.xattr.mark", Accounting,
        "The mark of the attributes in the inode has a wrong byte: readers see none of them.",
        "The mark is set.";
    /// The attribute block of one of several inodes.
    XATTR_DISPUTED = "ext4.xattr.disputed", Losing,
        "The attribute block may be another inode's: one bit away lies one that nobody has.",
        "The inode keeps the block, whose count of inodes is set; the other one becomes free.";
    /// The place of a value.
    XATTR_PLACE = "ext4.xattr.place", Accounting,
        "The value of an attribute is not where its entry says; the other values show its place.",
        "The place is set.";
    /// An attribute that no reader accepts.
    XATTR_REFUSED = "ext4.xattr.refused", Losing,
        "An extended attribute has a name, a place or an access list that no reader accepts.",
        "The attribute is removed.";
    /// Checksum of an attribute block.
    XATTR_CHECKSUM = "ext4.xattr.checksum", Losing,
        "The checksum of the attribute block does not match its bytes, and a hash in it is wrong.",
        "The block is taken as it is, and the checksum is computed.";
    /// Checksum of an attribute block whose hashes are right.
    XATTR_CHECKSUM_ONLY = "ext4.xattr.checksum_only", Accounting,
        "The checksum of the attribute block is wrong; the hashes of its attributes are right.",
        "The checksum is computed.";
    /// Hash of an attribute.
    XATTR_HASH = "ext4.xattr.hash", Accounting,
        "The hash of an extended attribute does not match its name, value and padding.",
        "The padding is cleared, and the hash is computed.";
    /// References to an attribute block.
    XATTR_REFERENCES = "ext4.xattr.references", Accounting,
        "The attribute block does not count the inodes that share it.",
        "The count is set.";
    /// An attribute's value in an inode.
    XATTR_VALUE = "ext4.xattr.value", Losing,
        "The inode that should hold the value of an extended attribute does not.",
        "The attribute is removed.";
    /// The inode of a value that nothing refers to.
    VALUE_UNREACHABLE = "ext4.value.unreachable", Accounting,
        "The inode holds the value of an extended attribute, and no attribute refers to it.",
        "It becomes a file in lost+found.";
    /// References to the inode of a value.
    VALUE_REFERENCES = "ext4.value.references", Accounting,
        "The inode of an attribute's value does not count the attributes that refer to it.",
        "The count is set.";
    /// The hash of a value in its inode.
    VALUE_HASH = "ext4.value.hash", Accounting,
        "The inode of an attribute's value has a hash that the value and the attribute contradict.",
        "The hash is set to that of the value.";
    /// Inline data.
    INLINE_DATA = "ext4.inline.data", Losing,
        "The inode should hold its contents itself, but it does not.",
        "The contents are cut to what is there.";
    /// A quota file that cannot be read.
    QUOTA_FILE = "ext4.quota.file", Losing,
        "The file that counts what users, groups or projects have is damaged.",
        "The file is made anew with the limits that can be read.";
    /// What a quota file counts.
    QUOTA_COUNTS = "ext4.quota.counts", Accounting,
        "The quota file counts other inodes or blocks of an owner than the owner has.",
        "The counts are set; limits stay as they are.";
    /// Orphans of a clean volume.
    ORPHAN_PENDING = "ext4.orphan.pending", Accounting,
        "Deletions or truncations have begun that were not ended.",
        "They are ended.";
    /// The inode of the file of orphans.
    ORPHAN_FILE = "ext4.orphan.file", Accounting,
        "The inode of the file of orphans contradicts the blocks of the file.",
        "The inode gets the kind, the flags and the size that the blocks imply.";
    /// A file of orphans that nothing protects.
    ORPHAN_JOURNAL = "ext4.orphan.journal", Accounting,
        "The volume has a file of orphans, but no journal, without which it has no use.",
        "The file is removed.";
    /// The list or file of orphans.
    ORPHAN_INVALID = "ext4.orphan.invalid", Accounting,
        "The list or the file of orphans is damaged.",
        "The rest of the list is dropped; inodes without a name go to lost+found.";
}
