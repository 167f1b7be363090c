//! The words of the search's histories.

/// A change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An empty file, the target from now on.
    Create,
    /// The target's latest name becomes another one.
    Rename,
    /// The same, and a whiteout takes the place of the old one.
    RenameLeavingWhiteout,
    /// The target's latest name goes.
    Unlink,
    /// A directory.
    MakeDirectory,
    /// One more name of the target.
    Link,
    /// An attribute of the target.
    SetXattr,
    /// Another owner of the target.
    Own,
    /// Bytes at the target's end.
    Append,
    /// Blocks at the target's end, past the cache.
    AppendDirect,
    /// The target's first block, past the cache.
    OverwriteDirect,
    /// The target loses its last bytes.
    Cut,
}

/// A way to make it durable.
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
    /// The volume turns read-only.
    ReadOnly,
    /// No call: directory and file have had `chattr +S` from the start, and what is made there
    /// inherits it.
    SynchronousFlag,
    /// No call: the directory has had `chattr +D` from the start.
    DirsyncFlag,
}

/// What happens before the last step, or before the call that makes the history durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meanwhile {
    /// Nothing.
    Nothing,
    /// All is written, nothing flushed, and the inodes have left memory before the last call.
    Evicted,
    /// The target is fsynced, twice, before the last step.
    Fsynced,
    /// The volume turns read-only and writable again before the last step.
    TurnedOver,
    /// A call meets damage, which does not stop the volume (`errors=continue`), before the last
    /// step.
    DamageContinue,
    /// The same with `errors=remount-ro`: the last step is refused, and earlier persisted changes
    /// are kept.
    DamageRemountReadOnly,
    /// The same with `errors=panic`.
    DamagePanic,
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
}

impl Meanwhile {
    /// True if the history needs a volume with damage.
    pub(super) const fn has_damage(self) -> bool {
        matches!(self, Self::DamageContinue | Self::DamageRemountReadOnly | Self::DamagePanic)
    }

    /// True if the volume takes nothing after this.
    pub(super) const fn stops(self) -> bool {
        matches!(self, Self::DamageRemountReadOnly | Self::DamagePanic)
    }
}
