//! One group in memory: what its lock guards, and hints for allocators that read them without it.

use std::sync::atomic::AtomicU32;

use cairn_base::Pba;
use cairn_base::ranked_lock::{Mutex, MutexGuard, Rank};

use crate::alloc::free_map::FreeMap;
use crate::format::group_desc::GroupDesc;

/// The state that a group's lock guards.
#[derive(Debug)]
pub(crate) struct GroupState {
    /// The descriptor.
    pub desc: GroupDesc,
    /// The free blocks that may be allocated. It is built from the bitmap at its first use.
    pub(crate) map: Option<FreeMap>,
    /// The block bitmap is invalid: no block of the group is allocated.
    pub(crate) damaged: bool,
    /// All free blocks were discarded, and none was freed since.
    pub(crate) trimmed: bool,
    /// A bitmap of inodes that were freed in transactions that are not durable; they are not
    /// allocated. It is empty if there are none.
    pub(crate) pending_inodes: Vec<u8>,
}

/// One group.
pub(crate) struct Group {
    state: Mutex<GroupState>,
    pub(super) inode_table: Pba,
    /// Upper bound of the longest run of free blocks.
    pub(crate) longest: AtomicU32,
    /// Free blocks that may be allocated.
    pub(crate) free_blocks: AtomicU32,
    /// Free inodes.
    pub(crate) free_inodes: AtomicU32,
    /// Directories.
    pub(crate) used_dirs: AtomicU32,
}

impl Group {
    pub(super) fn new(number: u32, desc: GroupDesc) -> Self {
        Self {
            inode_table: desc.inode_table,
            longest: AtomicU32::new(desc.free_blocks),
            free_blocks: AtomicU32::new(desc.free_blocks),
            free_inodes: AtomicU32::new(desc.free_inodes),
            used_dirs: AtomicU32::new(desc.used_dirs),
            state: Mutex::new_ordered(
                Rank::Allocator,
                number.into(),
                GroupState {
                    desc,
                    map: None,
                    damaged: false,
                    trimmed: false,
                    pending_inodes: Vec::new(),
                },
            ),
        }
    }

    /// Locks the group.
    pub(crate) fn lock(&self) -> MutexGuard<'_, GroupState> {
        self.state.lock()
    }

    /// Locks the group unless it is locked.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, GroupState>> {
        self.state.try_lock()
    }
}
