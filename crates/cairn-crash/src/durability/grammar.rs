//! The words of the histories: changes, and calls that make them durable.

/// A change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Creates an empty file, which becomes the target.
    Create,
    /// Renames the target's latest name.
    Rename,
    /// The same, with a whiteout in the place of the old name.
    RenameLeavingWhiteout,
    /// Removes the target's latest name.
    Unlink,
    /// Creates a directory.
    MakeDirectory,
    /// Adds a name to the target.
    Link,
    /// Sets an attribute of the target.
    SetXattr,
    /// Changes the owner of the target.
    Own,
    /// Appends bytes to the target.
    Append,
    /// Appends blocks to the target with direct I/O.
    AppendDirect,
    /// Overwrites the target's first block with direct I/O.
    OverwriteDirect,
    /// Truncates the target by some bytes.
    Cut,
}

/// A call or a flag that makes a history durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persist {
    /// `fsync` of the target.
    File,
    /// `fdatasync` of the target.
    FileData,
    /// `fsync` of the directory.
    Directory,
    /// `fdatasync` of the directory.
    DirectoryData,
    /// `sync`.
    All,
    /// A remount to read-only.
    ReadOnly,
    /// No call: directory and file have `chattr +S` from the start, and new files inherit it.
    SynchronousFlag,
    /// No call: the directory has `chattr +D` from the start.
    DirsyncFlag,
}

/// What happens before the last step, or before the call that makes the history durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meanwhile {
    /// Nothing.
    Nothing,
    /// Everything is written, nothing is flushed, and the inodes are evicted before the last call.
    Evicted,
    /// The target is fsynced, twice, before the last step.
    Fsynced,
    /// The volume is remounted read-only and writable again before the last step.
    TurnedOver,
    /// A call meets damage, which does not stop the volume (`errors=continue`), before the last
    /// step.
    DamageContinue,
    /// The same with `errors=remount-ro`: the last step is refused, and earlier persisted changes
    /// are kept.
    DamageRemountReadOnly,
    /// The same with `errors=panic`.
    DamagePanic,
    /// The volume is cut off at the end, recovered, and gets another size, in which the cuts are.
    Resized,
}

impl Step {
    pub(super) const ALL: [Self; 12] = [
        Self::Create,
        Self::Rename,
        Self::Unlink,
        Self::MakeDirectory,
        Self::Link,
        Self::SetXattr,
        Self::Append,
        Self::AppendDirect,
        Self::OverwriteDirect,
        Self::Cut,
        Self::RenameLeavingWhiteout,
        Self::Own,
    ];
}

impl Persist {
    /// Those that are calls on inodes, or `sync`.
    pub(super) const CALLS: [Self; 5] =
        [Self::File, Self::FileData, Self::Directory, Self::DirectoryData, Self::All];

    pub(super) const ALL: [Self; 8] = [
        Self::File,
        Self::FileData,
        Self::Directory,
        Self::DirectoryData,
        Self::All,
        Self::ReadOnly,
        Self::SynchronousFlag,
        Self::DirsyncFlag,
    ];
}

impl Meanwhile {
    pub(super) const ALL: [Self; 8] = [
        Self::Nothing,
        Self::Evicted,
        Self::Fsynced,
        Self::TurnedOver,
        Self::DamageContinue,
        Self::DamageRemountReadOnly,
        Self::DamagePanic,
        Self::Resized,
    ];

    /// True if the history needs a volume with damage.
    pub(super) const fn has_damage(self) -> bool {
        matches!(self, Self::DamageContinue | Self::DamageRemountReadOnly | Self::DamagePanic)
    }

    /// True if the volume refuses every change after this.
    pub(super) const fn stops(self) -> bool {
        matches!(self, Self::DamageRemountReadOnly | Self::DamagePanic)
    }
}
