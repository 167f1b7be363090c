//! Mount options of Linux's ext4 that Cairn has no setting for; docs/options.md lists them.

use cairn_base::options::Meaning::{Always, Ignored, Refused};
use cairn_base::options::Vocabulary;

const ALLOCATOR: &str = "it tunes Linux's allocator, Cairn has one of its own";
const COMMITS: &str = "it tunes Linux's journal threads; commit= and async_checkpoint= are Cairn's";
const READAHEAD: &str = "it tunes Linux's readahead";
const QUOTA: &str =
    "quotas are neither counted nor enforced here: leave it out, or mount with the kernel";
const EXTERNAL: &str = "external journals are not supported: mount with the kernel, or move the \
    journal inside (tune2fs)";
const DEBUG: &str = "it is for developers of Linux: leave it out";

/// The options without a setting, and the reasons.
pub(super) const WORDS: &Vocabulary = &[
    (
        &[
            "defaults",
            "delalloc",
            "barrier",
            "barrier=1",
            "acl",
            "user_xattr",
            "data=ordered",
            "block_validity",
            "noquota",
            "dax=never",
            "dax=inode",
        ],
        Always,
    ),
    (
        &["journal_checksum", "nojournal_checksum"],
        Ignored("the journal keeps the checksums that its superblock says"),
    ),
    (
        &["data=writeback"],
        Ignored("data is always on the disk before a commit points to it, as with data=ordered"),
    ),
    (
        &["data=journal"],
        Refused(
            "file data does not go through the journal here, so old data could be half overwritten \
             after a crash: leave it out for data=ordered",
        ),
    ),
    (
        &["nodelalloc"],
        Ignored("space is reserved at the write, and blocks are chosen when they are written"),
    ),
    (&["nobarrier", "barrier=0"], Ignored("the device is always asked to flush")),
    (&["noblock_validity"], Ignored("blocks are always checked against the metadata's")),
    (
        &["noacl", "nouser_xattr"],
        Ignored("Linux has given it up, too: ACLs and attributes stay in force"),
    ),
    (
        &["auto_da_alloc", "auto_da_alloc=", "noauto_da_alloc"],
        Ignored("files that replace others are written at fsync, sync and after a while"),
    ),
    (
        &[
            "mballoc",
            "nomballoc",
            "mb_optimize_scan=",
            "orlov",
            "oldalloc",
            "prefetch_block_bitmaps",
            "no_prefetch_block_bitmaps",
            "reservation",
            "noreservation",
        ],
        Ignored(ALLOCATOR),
    ),
    (
        &["min_batch_time=", "max_batch_time=", "journal_ioprio=", "journal_async_commit"],
        Ignored(COMMITS),
    ),
    (&["inode_readahead_blks="], Ignored(READAHEAD)),
    (
        &["data_err="],
        Ignored("data that cannot be written stays dirty, and the file's users get the error"),
    ),
    (
        &["init_itable", "init_itable=", "noinit_itable"],
        Ignored("inode tables are initialised where they are used"),
    ),
    (
        &[
            "dioread_lock",
            "dioread_nolock",
            "nodioread_nolock",
            "bh",
            "nobh",
            "mbcache",
            "nombcache",
            "no_mbcache",
            "inlinecrypt",
        ],
        Ignored("it chooses between implementations in Linux"),
    ),
    (
        &["i_version"],
        Ignored("every change of an inode is counted, but only Linux's NFS server asks for it"),
    ),
    (
        &["check=", "nocheck", "warn_on_error", "nowarn_on_error"],
        Ignored("Linux does nothing with it either, or only reports"),
    ),
    (
        &["dax", "dax=always"],
        Ignored("files are mapped through FUSE, not straight from the device"),
    ),
    (
        &["usrquota", "grpquota", "prjquota", "quota", "usrjquota=", "grpjquota=", "jqfmt="],
        Refused(QUOTA),
    ),
    (&["journal_dev=", "journal_path="], Refused(EXTERNAL)),
    (&["max_dir_size_kb="], Refused("directories are not kept below a size here: leave it out")),
    (&["nouid32"], Refused("owners are always stored with 32 bits: leave it out")),
    (
        &[
            "debug",
            "abort",
            "test_dummy_encryption",
            "test_dummy_encryption=",
            "fc_debug_force",
            "fc_debug_max_replay=",
        ],
        Refused(DEBUG),
    ),
];
