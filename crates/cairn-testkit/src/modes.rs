//! The mount modes of F2FS that are tested with every judge.
//!
//! Together they cover each way of writing checkpoints and of cleaning, not all combinations.

/// A kind of volume, and how it is mounted.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    /// True for a zoned device: a section is a zone, and `mode=lfs` is implied.
    pub zoned: bool,
    /// Mount options.
    pub options: &'static str,
}

impl Mode {
    /// Nothing is written in place or into holes: an operation that needs room cleans sections.
    #[must_use]
    pub fn is_lfs(&self) -> bool {
        self.zoned || self.options.contains("mode=lfs")
    }

    /// Checkpoints are merged.
    #[must_use]
    pub fn merges(&self) -> bool {
        !self.options.contains("nocheckpoint_merge")
    }
}

/// The defaults (`checkpoint_merge`, `gc_victim=adaptive`, `mode=adaptive`, cleaning by the
/// operation that needs room) and the modes that differ from them.
pub const MODES: [Mode; 4] = [
    Mode { zoned: false, options: "" },
    Mode { zoned: false, options: "nocheckpoint_merge,gc_victim=greedy" },
    Mode { zoned: false, options: "mode=lfs,gc_victim=data_first,gc_merge" },
    Mode { zoned: true, options: "" },
];
