//! [`FileSystemOver`]: a filesystem that changes some calls of another one.

use std::time::Duration;

use bytes::Bytes;
use cairn_base::Ino;
use cairn_base::stats::Report;

use crate::error::Result;
use crate::filesystem::FileSystem;
use crate::going_down::GoingDown;
use crate::root_reserved::ReservedFor;
use crate::types::{
    AllocateMode, Attributes, Caller, DirEntry, FileExtent, IoFlags, NewInode, OpenMode,
    RenameMode, Seek, SetAttributes, VolumeStats, XattrMode,
};

macro_rules! over {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        /// A filesystem over another. A call that the type does not define is the other one's.
        #[expect(clippy::missing_errors_doc, reason = "each has those of the call it stands for")]
        pub trait FileSystemOver: Send + Sync {
            /// The other filesystem.
            fn inner(&self) -> &dyn FileSystem;

            $(
                #[doc = concat!("As [`FileSystem::", stringify!($name), "`].")]
                fn $name(&self, $($argument: $type),*) $(-> $result)? {
                    self.inner().$name($($argument),*)
                }
            )*
        }

        impl<T: FileSystemOver> FileSystem for T {
            $(
                fn $name(&self, $($argument: $type),*) $(-> $result)? {
                    FileSystemOver::$name(self, $($argument),*)
                }
            )*
        }
    };
}

over! {
    root() -> Ino;
    lookup(parent: Ino, name: &[u8]) -> Result<Attributes>;
    ignores_case(directory: Ino) -> bool;
    forget(ino: Ino, count: u64);
    create(parent: Ino, name: &[u8], new: NewInode<'_>, permissions: u32,
        caller: &Caller) -> Result<Attributes>;
    tmpfile(parent: Ino, permissions: u32, caller: &Caller) -> Result<Attributes>;
    link(ino: Ino, parent: Ino, name: &[u8]) -> Result<Attributes>;
    unlink(parent: Ino, name: &[u8]) -> Result<()>;
    rmdir(parent: Ino, name: &[u8]) -> Result<()>;
    rename(parent: Ino, name: &[u8], new_parent: Ino, new_name: &[u8],
        mode: RenameMode) -> Result<()>;
    readlink(ino: Ino) -> Result<Vec<u8>>;
    readdir(ino: Ino, position: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()>;
    getattr(ino: Ino) -> Result<Attributes>;
    setattr(ino: Ino, set: &SetAttributes) -> Result<Attributes>;
    open(ino: Ino, mode: OpenMode) -> Result<u64>;
    release(ino: Ino, handle: u64);
    read(ino: Ino, offset: u64, buf: &mut [u8], flags: IoFlags) -> Result<usize>;
    read_shared(ino: Ino, offset: u64, len: usize, flags: IoFlags,
        take: &mut dyn FnMut(&[&[u8]])) -> Result<bool>;
    write(ino: Ino, offset: u64, data: &[u8], flags: IoFlags) -> Result<usize>;
    write_shared(ino: Ino, offset: u64, data: Bytes, flags: IoFlags) -> Result<usize>;
    fsync(ino: Ino, handle: u64, data_only: bool) -> Result<()>;
    allocate(ino: Ino, mode: AllocateMode, offset: u64, len: u64) -> Result<()>;
    seek(ino: Ino, offset: u64, what: Seek) -> Result<u64>;
    extents(ino: Ino, offset: u64, len: u64, sync: bool,
        emit: &mut dyn FnMut(FileExtent) -> bool) -> Result<()>;
    copy_range(from: Ino, from_offset: u64, to: Ino, to_offset: u64, len: u64) -> Result<u64>;
    getxattr(ino: Ino, name: &[u8]) -> Result<Vec<u8>>;
    listxattr(ino: Ino) -> Result<Vec<Vec<u8>>>;
    setxattr(ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()>;
    removexattr(ino: Ino, name: &[u8]) -> Result<()>;
    statfs() -> Result<VolumeStats>;
    room(reserved: bool) -> u64;
    reserved_for() -> Option<ReservedFor>;
    referenced() -> Vec<Ino>;
    sync() -> Result<()>;
    trim(offset: u64, len: u64, minimum: u64) -> Result<u64>;
    label() -> Result<Vec<u8>>;
    set_label(label: &[u8]) -> Result<()>;
    time_granularity() -> Duration;
    report() -> Report;
    remount(options: &str) -> Result<()>;
    check_remount(options: &str) -> Result<()>;
    freeze() -> Result<()>;
    thaw() -> Result<()>;
    is_frozen() -> bool;
    shutdown(flush_log: bool) -> Result<()>;
    check_stopped() -> Result<()>;
    go_down(flags: GoingDown) -> Result<()>;
    abandon(reason: &str) -> Result<()>;
    unmount() -> Result<()>;
}
