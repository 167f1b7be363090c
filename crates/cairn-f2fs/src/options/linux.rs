//! Mount options of Linux's F2FS that Cairn has no setting for; docs/options.md lists them.

use cairn_base::options::Meaning::{Always, Ignored, Refused};
use cairn_base::options::Vocabulary;

const COMPRESSION: &str = "compressed files are read, but none are written compressed";
const CACHES: &str = "it chooses what Linux keeps in memory; cache= is Cairn's";
const QUOTA: &str =
    "quotas are neither counted nor enforced here: leave it out, or mount with the kernel";
const DEBUG: &str = "it is for developers of Linux: leave it out";

/// The words, and for each what is said about it.
pub(super) const WORDS: &Vocabulary = &[
    (
        &[
            "defaults",
            "acl",
            "user_xattr",
            "inline_xattr",
            "inline_data",
            "inline_dentry",
            "barrier",
            "active_logs=6",
            "fsync_mode=posix",
            "alloc_mode=default",
            "heap",
            "no_heap",
            "noquota",
            "io_bits=0",
            "memory=normal",
        ],
        Always,
    ),
    (&["active_logs="], Ignored("six logs are always written")),
    (&["noacl", "nouser_xattr"], Ignored("ACLs and attributes stay in force")),
    (
        &["noinline_xattr", "noinline_data", "noinline_dentry", "inline_xattr_size="],
        Ignored("new files are inline where they fit, which every reader knows"),
    ),
    (&["nobarrier", "fsync_mode=nobarrier"], Ignored("the device is always asked to flush")),
    (
        &["fsync_mode=strict"],
        Refused(
            "fsync writes what fsync_mode=posix does: leave it out, and fsync the directory where \
             a name must last",
        ),
    ),
    (&["alloc_mode=reuse", "alloc_mode="], Ignored("where logs find room follows mode=")),
    (
        &["flush_merge", "noflush_merge"],
        Ignored("flushes of callers who ask at once are always shared"),
    ),
    (
        &["extent_cache", "noextent_cache", "age_extent_cache", "memory=low", "ram_thresh="],
        Ignored(CACHES),
    ),
    (&["fastboot", "nat_bits"], Ignored("it makes Linux's next mount faster")),
    (&["data_flush"], Ignored("data is written when it has been in memory for a while")),
    (
        &["discard_unit=", "whint_mode=", "lookup_mode=", "inlinecrypt"],
        Ignored("it chooses between ways of Linux to do the same"),
    ),
    (
        &[
            "compress_algorithm=",
            "compress_log_size=",
            "compress_extension=",
            "nocompress_extension=",
            "compress_chksum",
            "compress_mode=",
            "compress_cache",
        ],
        Ignored(COMPRESSION),
    ),
    (
        &["disable_ext_identify"],
        Ignored("the superblock's list of name extensions chooses the log of a new file"),
    ),
    (
        &["reserve_node="],
        Ignored(
            "nodes are not kept back for root; reserve_root= keeps blocks, and nodes need some",
        ),
    ),
    (
        &[
            "usrquota",
            "grpquota",
            "prjquota",
            "quota",
            "usrjquota=",
            "grpjquota=",
            "prjjquota=",
            "jqfmt=",
        ],
        Refused(QUOTA),
    ),
    (
        &[
            "io_bits=",
            "test_dummy_encryption",
            "test_dummy_encryption=",
            "fault_injection=",
            "fault_type=",
        ],
        Refused(DEBUG),
    ),
];
