//! What can be wrong with an F2FS volume. docs/check.md has the same table; a test compares them.

cairn_check::kinds! {
    /// Neither superblock, or neither checkpoint, can be used.
    VOLUME = "f2fs.volume.unreadable", Fatal,
        "The volume cannot be read: no copy of a structure that everything else needs is sound.",
        "Nothing.";
    /// One copy of the superblock is damaged.
    SUPERBLOCK = "f2fs.superblock.damaged", Accounting,
        "One copy of the superblock is damaged; the other one is used.",
        "The sound copy is written over the damaged one.";
    /// The copies of the superblock differ.
    SUPERBLOCK_COPIES = "f2fs.superblock.copies", Accounting,
        "The two copies of the superblock describe different volumes; the one that the rest of the \
            volume agrees with is used.",
        "It is written over the other one.";
    /// Both copies of the superblock are damaged.
    SUPERBLOCK_BOTH = "f2fs.superblock.both", Losing,
        "Both copies of the superblock are damaged; one with a field of the other, or with a \
            computed field or checksum, is used.",
        "It is written over both.";
    /// The features of the superblock are wrong.
    SUPERBLOCK_FEATURES = "f2fs.superblock.features", Accounting,
        "The superblock says that the volume has other features than its inodes show.",
        "The features are set as the inodes show them.";
    /// A field of the superblock is impossible, and nothing is read by it.
    SUPERBLOCK_FIELD = "f2fs.superblock.field", Accounting,
        "The superblock names quota files without the feature, by impossible numbers or by those \
            of files with names, or devices that do not make up the volume.",
        "The number is set to that of the hidden quota file, or else to 0; the names of devices \
            are cleared, if the volume has one device.";
    /// The superblock records errors.
    SUPERBLOCK_ERRORS = "f2fs.superblock.errors", Accounting,
        "The superblock records that errors were found or that the volume has stopped.",
        "The record is cleared after the repair.";
    /// The checkpoint asks for a check.
    CHECKPOINT_FLAGS = "f2fs.checkpoint.flags", Accounting,
        "The checkpoint says that the volume had errors and must be checked.",
        "The flag is cleared after the repair.";
    /// The newest pack is damaged.
    CHECKPOINT_PACK = "f2fs.checkpoint.pack", Losing,
        "The newest checkpoint is damaged; the one before it is used, so later changes are lost.",
        "The next checkpoint is written over the damaged one.";
    /// One end of the newest pack is damaged.
    CHECKPOINT_END = "f2fs.checkpoint.end", Accounting,
        "The first or the last block of the newest checkpoint is damaged, or both have a wrong \
            place for their checksum, so a mount uses the checkpoint before it; what they must be \
            is known.",
        "They are set right: nothing is lost.";
    /// A count of the checkpoint is wrong.
    CHECKPOINT_COUNT = "f2fs.checkpoint.count", Accounting,
        "A count of the checkpoint differs from what the volume holds.",
        "The count is set.";
    /// The position of a log is wrong.
    CHECKPOINT_LOG = "f2fs.checkpoint.log", Accounting,
        "A log's next block is in use, or its segment is of another log.",
        "The log is moved to a free segment.";
    /// Journals or summaries of the pack are damaged.
    CHECKPOINT_SUMMARIES = "f2fs.checkpoint.summaries", Accounting,
        "The checkpoint's summaries of the current segments are damaged.",
        "They are made from the nodes.";
    /// The journal of the NAT is damaged, and footers of nodes say what it should be.
    CHECKPOINT_JOURNAL = "f2fs.checkpoint.journal", Accounting,
        "An entry of the checkpoint's journal of the NAT has a number that it cannot have.",
        "The number is that of the footer of the node to which the entry leads.";
    /// The journal of the NAT is damaged.
    CHECKPOINT_JOURNAL_LOST = "f2fs.checkpoint.journal_lost", Losing,
        "The checkpoint's journal of the NAT is damaged, and no footer of a node says what it \
            should be.",
        "The entry is dropped. The nodes are looked for, as all that the NAT lacks.";
    /// The `nat_bits` of the pack are wrong.
    NAT_BITS = "f2fs.checkpoint.nat_bits", Accounting,
        "The bits of full and of empty NAT blocks (nat_bits) differ from the NAT.",
        "The bits are dropped: a mount makes them again.";
    /// An orphan block of the pack is damaged.
    ORPHAN_BLOCK = "f2fs.orphan.block", Accounting,
        "A block of the list of orphan inodes is damaged.",
        "The list is made from the inodes without links.";
    /// An orphan is no orphan.
    ORPHAN = "f2fs.orphan.inode", Accounting,
        "The list of orphan inodes names an inode that does not exist or that has a link.",
        "The inode is removed from the list.";
    /// Fsynced nodes behind the checkpoint cannot be recovered.
    RECOVERY = "f2fs.recovery.failed", Losing,
        "What was fsynced since the last checkpoint cannot be recovered; the last checkpoint was \
            checked instead.",
        "The nodes behind the checkpoint are dropped: those of damaged inodes, if the rest can be \
            recovered, else all.";
    /// Fsynced nodes behind the checkpoint wait until the SIT and the NAT are right.
    RECOVERY_WAITS = "f2fs.recovery.waits", Accounting,
        "What was fsynced since the last checkpoint is not recovered while the SIT, the NAT or the \
            owner of a block is wrong, because that could overwrite files; the last checkpoint was \
            checked instead.",
        "It is recovered once they are right.";
    /// A node behind the checkpoint leads past others.
    RECOVERY_CHAIN = "f2fs.recovery.chain", Accounting,
        "A node behind the checkpoint names another next block, or another checkpoint, than those \
            around it show, or has a number that its block disproves, so that Linux would drop \
            what was fsynced.",
        "What was fsynced is recovered as they show it.";
    /// A NAT entry is impossible.
    NAT_ENTRY = "f2fs.nat.entry", Losing,
        "An entry of the node address table (NAT) is impossible, so its node is lost.",
        "The entry is cleared.";
    /// The entry of a nid that is none of a node.
    NAT_RESERVED = "f2fs.nat.reserved", Accounting,
        "The NAT's entry of a reserved number (0, 1 or 2) is not the one that every volume has.",
        "The entry is set.";
    /// An entry that the journal replaces is impossible.
    NAT_REPLACED = "f2fs.nat.replaced", Accounting,
        "An entry of the NAT that its journal replaces is impossible.",
        "The entry of the journal is written over it.";
    /// The NAT has a wrong address, and the node was found.
    NAT_ADDRESS = "f2fs.nat.address", Accounting,
        "The NAT does not lead to a node that a repair has found elsewhere.",
        "The entry gets the address of the node.";
    /// The NAT leads to a version of a node that may be an old one.
    NAT_DOUBT = "f2fs.nat.doubt", Losing,
        "The NAT leads to a node, and there are signs of a newer version of it elsewhere; the SIT \
            does not show which of them is in use.",
        "The entry gets the address of the newer version if that can be read, else the older one \
            stays: what the other one had is lost.";
    /// A node that only the NAT lacks.
    NAT_LOST = "f2fs.nat.lost", Losing,
        "The NAT lacks a node that the checkpoint counts, and whose newest block was found.",
        "The entry gets the address of the block; what the node had later is lost, if the block is \
            an old one.";
    /// A node of which nothing is left.
    NODE_LOST = "f2fs.node.lost", Losing,
        "The NAT lacks a node that the checkpoint counts, and its block is something else.",
        "The block is freed: the node is lost.";
    /// A node that no inode reaches.
    NAT_UNREACHABLE = "f2fs.nat.unreachable", Losing,
        "The NAT has a node that its inode does not reach.",
        "It is linked again if its footer shows where and no right node is there; else it is \
            freed.";
    /// A node of a deleted file that the NAT has again.
    NAT_DELETED = "f2fs.nat.deleted", Accounting,
        "The NAT has a node of a deleted file: without it, all is there that the checkpoint counts \
            and that the SIT calls used.",
        "The entry is cleared.";
    /// A SIT entry is impossible.
    SIT_ENTRY = "f2fs.sit.entry", Accounting,
        "An entry of the segment information table (SIT) contradicts itself.",
        "It is computed from the nodes.";
    /// The SIT's bits differ from the blocks in use.
    SIT_BITS = "f2fs.sit.bits", Accounting,
        "The SIT says of other blocks of the segment that they are in use.",
        "The bits are set from the nodes.";
    /// The SIT's type of a segment does not fit its blocks.
    SIT_TYPE = "f2fs.sit.type", Accounting,
        "The SIT's type of the segment does not fit the blocks in it: data among nodes, or nodes \
            among data.",
        "The type is set; if both are in the segment, one of them is moved.";
    /// The type of a summary block is wrong.
    SUMMARY_TYPE = "f2fs.summary.type", Accounting,
        "The summary of the segment is of the wrong type, so cleaning would lose its blocks.",
        "The summary is made from the nodes.";
    /// A summary names another owner.
    SUMMARY_OWNER = "f2fs.summary.owner", Accounting,
        "The summary names another owner of the block, so cleaning would lose it.",
        "The entry is set from the nodes.";
    /// A node block is another node.
    NODE_FOOTER = "f2fs.node.footer", Losing,
        "The block of a node belongs to another node, or its footer is damaged.",
        "The footer is set if one field of it is wrong, or if the summary has the number that it \
            lacks; else the pointer to the node is cleared.";
    /// A pointer names a node that does not exist.
    NODE_MISSING = "f2fs.node.missing", Losing,
        "An inode or an indirect node points to a node that does not exist.",
        "The pointer is cleared: that part of the file becomes a hole.";
    /// Two pointers name one node.
    NODE_SHARED = "f2fs.node.shared", Losing,
        "Two pointers lead to the same node.",
        "The second pointer is cleared.";
    /// A block has two owners.
    BLOCK_SHARED = "f2fs.block.shared", Losing,
        "Two pointers lead to the same block, so a write to one file changes another, or a pointer \
            to data leads to a node.",
        "The pointer is cleared if the block is a node, or if its summary names the other pointer; \
            else the second owner gets a copy.";
    /// A data pointer is impossible.
    BLOCK_ADDRESS = "f2fs.block.address", Losing,
        "A data pointer leads out of the main area.",
        "The pointer is cleared: that block of the file becomes a hole.";
    /// A pointer to a block in use is damaged.
    BLOCK_UNLINKED = "f2fs.block.unlinked", Accounting,
        "A block is in use, and its summary names a pointer that leads elsewhere; or the summaries \
            of two blocks name each other's pointers; or another pointer of the node leads there, \
            and the empty one that the summary names belongs to the blocks around it.",
        "The pointer is set to the block, and the one that led there is empty again.";
    /// A block in use whose pointer may have none.
    BLOCK_DOUBT = "f2fs.block.doubt", Losing,
        "A block is in use, and its summary names a pointer that reserves a place without a block, \
            or that leads elsewhere as those of other nodes do: nothing says whether the pointer \
            is wrong or the SIT.",
        "The pointer is set to the block if it reserves a place; else it stays.";
    /// A data pointer leads to a free block.
    BLOCK_FREE = "f2fs.block.free", Losing,
        "A data pointer leads to a block that the SIT calls free and that no summary gives the \
            file.",
        "The pointer is cleared if the summary names another owner; else the block is the file's.";
    /// The checksum of an inode is wrong.
    INODE_CHECKSUM = "f2fs.inode.checksum", Losing,
        "The checksum of the inode does not match its block.",
        "The inode is taken as it is, and the checksum is computed.";
    /// The form of an inode contradicts its body.
    INODE_SHAPE = "f2fs.inode.shape", Losing,
        "A flag or size says that the inode is to be read otherwise than what it holds shows.",
        "The field is set to what the inode's pointers, contents and attributes show.";
    /// The type of an inode contradicts its contents and its name.
    INODE_TYPE = "f2fs.inode.type", Accounting,
        "The type of the inode (i_mode) contradicts its contents and its name, which agree.",
        "The type is set to theirs.";
    /// Type, contents and name of an inode are of different types.
    INODE_DOUBT = "f2fs.inode.doubt", Losing,
        "The type of the inode (i_mode), its contents and its name do not agree on a type.",
        "The type is set to that of the contents; if they show none, to that of the name.";
    /// A field of an inode is impossible.
    INODE_FIELD = "f2fs.inode.field", Losing,
        "A field of the inode is impossible.",
        "The field is set to a possible value; if the inode cannot be read, it is freed.";
    /// `i_blocks` is wrong.
    INODE_BLOCKS = "f2fs.inode.blocks", Accounting,
        "The inode's count of blocks (i_blocks) is wrong.",
        "The count is set.";
    /// `i_size` is wrong.
    INODE_SIZE = "f2fs.inode.size", Accounting,
        "The size does not fit the contents of a directory or symbolic link.",
        "The size is set from the contents.";
    /// A symbolic link has no target.
    INODE_TARGET = "f2fs.inode.target", Losing,
        "The target of a symbolic link is missing or empty, or has a NUL in it.",
        "The link is removed; a target with a NUL ends there.";
    /// `i_links` is wrong.
    INODE_LINKS = "f2fs.inode.links", Accounting,
        "The inode's count of links differs from its names.",
        "The name that the inode records is made again, if it is missing; one that it does not \
            count is removed from a directory that was deleted and comes back; else the count is \
            set. If one inode lacks a name and another one has one too many, and nothing shows \
            which entry has a wrong number, only a repair with losses does it.";
    /// Names of an inode are lost.
    INODE_NAMES = "f2fs.inode.names", Losing,
        "Fewer names lead to the inode than it counts, and a slot that had one is free, or \
            something else is damaged that may have taken them.",
        "The name that the inode records is made again, if it is missing; else the count is set.";
    /// `i_pino` of a directory is wrong.
    INODE_PARENT = "f2fs.inode.parent", Accounting,
        "A directory's record of its parent (i_pino) differs from its entry `..`.",
        "The record is set.";
    /// `i_ext` is wrong.
    INODE_EXTENT = "f2fs.inode.extent", Accounting,
        "The hint of the largest extent (i_ext) differs from the data pointers, so reads would \
            return other blocks.",
        "The hint is cleared.";
    /// Inline contents are damaged.
    INODE_INLINE = "f2fs.inode.inline", Accounting,
        "The flags or the reserved word of inline contents are wrong, or there are pointers beside \
            them.",
        "They are set; the pointers are cleared.";
    /// Something lies behind the end of inline contents.
    INODE_TAIL = "f2fs.inode.tail", Losing,
        "Inline contents go on behind the end of the file (i_size): it or they are damaged.",
        "If one wrong bit of the size explains their end, or they go on without a gap, the size is \
            set to that. Else it stays, and the bytes behind it are cleared.";
    /// The clusters of a compressed file are damaged.
    INODE_COMPRESSION = "f2fs.inode.compression", Losing,
        "The marks of compressed clusters, or the count of saved blocks, are wrong.",
        "A mark that is missing is set if the data shows it; else the count is set. A mark in the \
            wrong place, or without data, is cleared.";
    /// No name leads to an inode.
    INODE_UNREACHABLE = "f2fs.inode.unreachable", Accounting,
        "The inode has no name, and is not in the list of orphan inodes.",
        "It gets the name that it records, or that a free slot of a directory has. Without a \
            proved one, it goes to lost+found: at once if it may have been deleted, else only in a \
            repair with losses.";
    /// The last name of an inode without one is not known.
    INODE_NAME = "f2fs.inode.name", Losing,
        "The inode has no name, and nothing proves which one it had: its record is marked as an \
            older one, or does not agree with free slots of directories that have its names.",
        "It gets the name that it records, if that is not marked, or one that a free slot has too; \
            else one in lost+found.";
    /// A hidden inode of quota is not as it must be.
    QUOTA = "f2fs.quota.inode", Accounting,
        "A hidden quota inode does not exist or is no regular file.",
        "The inode is looked for in the blocks in use. If it is not there, nothing is done: \
            fsck.f2fs makes quota files.";
    /// A quota file that cannot be read.
    QUOTA_FILE = "f2fs.quota.file", Losing,
        "The file that counts what users, groups or projects have is damaged.",
        "The file is made anew with the limits that can be read.";
    /// What a quota file counts.
    QUOTA_COUNTS = "f2fs.quota.counts", Accounting,
        "The quota file counts other inodes or blocks of an owner than the owner has.",
        "The counts are set; limits stay as they are.";
    /// The root is not a directory.
    ROOT = "f2fs.root.missing", Losing,
        "The root directory is missing or is no directory, so no file has a path.",
        "The root is taken from the log, and names that were removed since may be back; without \
            one there, a new one gets the names that inodes record.";
    /// A directory entry is impossible.
    DIRECTORY_ENTRY = "f2fs.directory.entry", Losing,
        "An entry of the directory is damaged: its name, its length or its slots are impossible.",
        "The entry is removed.";
    /// The hash of an entry is wrong.
    DIRECTORY_HASH = "f2fs.directory.hash", Accounting,
        "The hash of a name is wrong, so the name is not found.",
        "The name gets back the byte or the length that makes it have this hash, or the one that \
            its inode records; a hash with one wrong byte is computed again. Else only \
            a repair with losses does that, because the name may be what is wrong.";
    /// An entry is in the wrong bucket.
    DIRECTORY_BUCKET = "f2fs.directory.bucket", Accounting,
        "A name is in a bucket where no search looks for it.",
        "The entry is moved to its bucket.";
    /// `.` or `..` is wrong.
    DIRECTORY_DOTS = "f2fs.directory.dots", Accounting,
        "The entries `.` and `..` are missing, out of place, or lead elsewhere.",
        "They are made again.";
    /// A name is there twice.
    DIRECTORY_DUPLICATE = "f2fs.directory.duplicate", Losing,
        "The directory has the same name twice.",
        "The second entry gets another name.";
    /// The type of an entry is wrong.
    DIRECTORY_TYPE = "f2fs.directory.type", Accounting,
        "An entry says that its inode is of another type than it is.",
        "The type is set. If its inode has a name too many, and another one lacks one, the entry \
            gets the number of an inode that records this name; without one, a repair with losses \
            removes the entry.";
    /// An entry leads nowhere.
    DIRECTORY_TARGET = "f2fs.directory.target", Losing,
        "An entry names an inode that does not exist.",
        "The entry is removed.";
    /// A directory has two names.
    DIRECTORY_LINKED = "f2fs.directory.linked", Losing,
        "A directory has more than one name.",
        "The names but the first are removed.";
    /// Directories contain each other.
    DIRECTORY_CYCLE = "f2fs.directory.cycle", Losing,
        "A directory is reachable from itself only, not from the root.",
        "It is moved to lost+found.";
    /// Attributes are damaged.
    XATTR = "f2fs.xattr.entry", Losing,
        "The extended attributes are damaged from this place on.",
        "The attributes from there on are removed.";
    /// A zone's write pointer contradicts the volume.
    ZONE = "f2fs.zone.pointer", Losing,
        "A block in use is behind a zone's write pointer or its capacity, or a zone is unusable.",
        "The block is cut from its file: nothing was written there.";
}
