//! The lock order: every rank there is.
//!
//! `docs/locks.md` explains the table and shows which operations the locks order.

macro_rules! ranks {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A place in the lock order. A thread takes locks in the order of this list.
        ///
        /// Locks of one rank nest only if both carry an order, and it rises.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Rank {
            $($(#[$doc])* $name,)*
        }

        impl Rank {
            /// All ranks in the lock order.
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

ranks! {
    /// The position of an open file of the library (Linux: `f_pos_lock`).
    Position,
    /// The volume behind a name. A remount may replace it by the same volume, opened again.
    Reopen,
    /// ext4: a change of the mount options.
    Options,
    /// Write access to a volume: shared by each call that may change it, exclusive while the volume
    /// turns read-only or read-write, freezes or thaws.
    Volume,
    /// F2FS: the start and the end of the daemon of `checkpoint_merge`.
    CheckpointMerge,
    /// The rename mutex (order 0), then directories and other inodes whose names or links change
    /// (order: inode number).
    Namespace,
    /// An inode's data and size (order: inode number).
    InodeData,
    /// F2FS: one fsync of an inode at a time (order: inode number).
    Fsync,
    /// F2FS: one cleaner at a time.
    Cleaner,
    /// F2FS: one checkpoint at a time.
    Checkpoint,
    /// F2FS: shared by writers of file data, exclusive for a checkpoint's snapshot.
    DataWriters,
    /// F2FS: shared by readers of file data, exclusive while the cleaner moves blocks.
    DataReaders,
    /// What a file has reserved for data that has no blocks yet.
    Reservations,
    /// F2FS: one thread at a time gives the delayed blocks of a file their slots (order: inode
    /// number).
    Slots,
    /// ext4: a journal handle, which is no lock object (see [`super::enter`]). F2FS: the operation
    /// lock, shared by operations, exclusive for a checkpoint's snapshot.
    Operation,
    /// A folio's contents and state.
    Folio,
    /// ext4: a file's block map. F2FS: an inode's fields.
    Mapping,
    /// F2FS: what is known of a file's map (order: inode number).
    FileMap,
    /// F2FS: the order in which nodes are written.
    NodeChain,
    /// F2FS: a node's block (order: nid).
    Node,
    /// ext4: a group's bitmaps (order: group), the list of orphans. F2FS: NAT, then segments.
    Allocator,
    /// One write-back of metadata buffers at a time.
    BufferWriteback,
    /// A metadata buffer's contents (order: block). F2FS: the superblock
    /// as it was last written.
    Buffer,
    /// ext4: the start and the end of the daemon of `async_checkpoint`.
    CheckpointDaemon,
    /// The journal's state.
    Journal,
    /// Indexes and lists of the caches.
    Cache,
    /// Emulated zoned device: one update of the table of zones at a time.
    Zones,
    /// The tables of a virtual disk: of writers, of its clusters, of its map (order: an image
    /// before those that hold it).
    Image,
    /// The way out of a network connection: one message at a time.
    Connection,
    /// Held for a few instructions, with nothing taken inside.
    Leaf,
}
