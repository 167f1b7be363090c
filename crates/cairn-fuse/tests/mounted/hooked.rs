//! The oracle with a hook before each call, which waits or panics.

use cairn_base::Ino;
use cairn_base::stats::Report;
use cairn_testkit::model::Model;
use cairn_vfs::{
    AllocateMode, Attributes, Caller, DirEntry, FileExtent, FileSystem, IoFlags, NewInode,
    OpenMode, RenameMode, Result, Seek, SetAttributes, VolumeStats, XattrMode,
};

/// A model whose calls run `before` with the call's name first.
pub struct Hooked {
    pub model: Model,
    pub before: Box<dyn Fn(&'static str) + Send + Sync>,
}

macro_rules! hook {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        impl FileSystem for Hooked {
            $(fn $name(&self, $($argument: $type),*) $(-> $result)? {
                (self.before)(stringify!($name));
                self.model.$name($($argument),*)
            })*
        }
    };
}

hook! {
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
    write(ino: Ino, offset: u64, data: &[u8], flags: IoFlags) -> Result<usize>;
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
    sync() -> Result<()>;
    trim(offset: u64, len: u64, minimum: u64) -> Result<u64>;
    label() -> Result<Vec<u8>>;
    set_label(label: &[u8]) -> Result<()>;
    report() -> Report;
    remount(options: &str) -> Result<()>;
    check_remount(options: &str) -> Result<()>;
    shutdown(flush_log: bool) -> Result<()>;
    unmount() -> Result<()>;
}
