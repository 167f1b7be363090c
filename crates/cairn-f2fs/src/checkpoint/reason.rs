//! Why a checkpoint is written.

/// Why a checkpoint is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Reason {
    /// A sync of the whole volume.
    Sync,
    /// An fsync that roll-forward cannot serve.
    Fsync,
    /// Segments are needed that only a checkpoint frees.
    Cleaning,
    /// There is too much dirty data in memory.
    Memory,
    /// Roll-forward is done.
    Recovery,
    /// The volume is closed: the pack gets node summaries and the mark of a clean end.
    Umount,
    /// The last one before checkpoints are disabled; the pack says so.
    Pause,
    /// Checkpoints are enabled again.
    Resume,
    /// A change of the volume's size is complete, or undone.
    Resize,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 9] = [
        Self::Sync,
        Self::Fsync,
        Self::Cleaning,
        Self::Memory,
        Self::Recovery,
        Self::Umount,
        Self::Pause,
        Self::Resume,
        Self::Resize,
    ];

    /// Its name in statistics.
    #[must_use]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Fsync => "fsync",
            Self::Cleaning => "cleaning",
            Self::Memory => "memory",
            Self::Recovery => "recovery",
            Self::Umount => "umount",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Resize => "resize",
        }
    }
}
