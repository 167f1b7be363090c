//! A volume that was opened for reading, and that a remount with `rw` opens again for writing.
//!
//! A volume that is opened for reading has a reader's lock on its image and writes nothing: an
//! unclean journal is replayed in memory. To turn it writable, it is closed, and the image is
//! opened again with a writer's lock and the options in force; this recovers it first, as in Linux.
//! Inode numbers are the same in both volumes, so references are moved by number. Conditions that
//! forbid writing are checked before the volume is closed. If opening for writing fails all the
//! same, the volume is opened for reading again through the descriptor that was kept open, which
//! needs neither a name nor `/proc`. If that fails, too (another process has begun to write the
//! image), every call fails.
//!
//! Locking: every call holds `current` shared, before all locks of a volume; opening
//! again holds it exclusively. Calls that wait for a thaw do not delay this, because on a read-only
//! volume no call waits.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::Ino;
use cairn_base::ranked_lock::{Mutex, Rank, RwLock};
use cairn_base::stats::Report;
use cairn_vfs::{
    AllocateMode, Attributes, Bytes, Caller, DirEntry, Error, FileExtent, FileSystem, GoingDown,
    IoFlags, NewInode, OpenMode, RenameMode, ReservedFor, Result, Seek, SetAttributes, VolumeStats,
    XattrMode,
};

use crate::volume::OpenOptions;

/// Opens the image, or says why not.
pub(crate) type Open =
    Box<dyn Fn(&OpenOptions) -> Result<Arc<dyn FileSystem>, String> + Send + Sync>;
/// Looks at options, and whether the image can be written at all, without opening the volume.
pub(crate) type Check = Box<dyn Fn(&OpenOptions) -> Result<(), String> + Send + Sync>;
/// Whether the image can be written, or why not.
pub(crate) type CanWrite = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// A volume that can be opened again for writing, behind one
/// [`FileSystem`](cairn_vfs::FileSystem).
pub(crate) struct Reopened {
    root: Ino,
    open: Open,
    check: Check,
    current: RwLock<Current>,
    /// Taken and not dropped while it was only read.
    references: Mutex<HashMap<Ino, u64>>,
}

struct Current {
    /// `None` if it could not be opened again.
    filesystem: Option<Arc<dyn FileSystem>>,
    /// With which options it was opened for reading; `None` once it has been opened for writing.
    reading: Option<OpenOptions>,
}

impl Reopened {
    /// Of a volume that has just been opened with these options, for reading.
    pub(crate) fn new(
        filesystem: Arc<dyn FileSystem>,
        options: &OpenOptions,
        open: Open,
        check: Check,
    ) -> Self {
        Self {
            root: filesystem.root(),
            open,
            check,
            current: RwLock::new(
                Rank::Reopen,
                Current { filesystem: Some(filesystem), reading: Some(options.clone()) },
            ),
            references: Mutex::new(Rank::Leaf, HashMap::new()),
        }
    }

    /// Opens the image for writing in place of `current`, which no other call uses now.
    fn begin_to_write(&self, current: &mut Current, options: &OpenOptions) -> Result<()> {
        let reading = current.reading.clone().unwrap_or_default();
        let ended = current.filesystem.take().map_or(Ok(()), |filesystem| filesystem.unmount());
        let opened =
            ended.map_err(|error| error.to_string()).and_then(|()| self.open_writable(options));
        match opened {
            Ok(filesystem) => {
                self.hand_over(&*filesystem);
                *current = Current { filesystem: Some(filesystem), reading: None };
                Ok(())
            }
            Err(why) => {
                current.filesystem = (self.open)(&reading)
                    .inspect_err(|error| {
                        tracing::error!("the image cannot be opened for reading again: {error}")
                    })
                    .ok();
                Err(refused(&why))
            }
        }
    }

    fn open_writable(&self, options: &OpenOptions) -> Result<Arc<dyn FileSystem>, String> {
        let filesystem = (self.open)(options)?;
        match filesystem.report().text("state.read_only_reason") {
            None => Ok(filesystem),
            Some(why) => {
                let why = why.to_owned();
                // Nothing was written, so there is no error to report.
                let _ = filesystem.unmount();
                Err(format!("{why}: it can only be read"))
            }
        }
    }

    fn hand_over(&self, filesystem: &dyn FileSystem) {
        let references = std::mem::take(&mut *self.references.lock());
        for (ino, count) in references {
            // An orphan that a caller had found by its number is deleted now, as in Linux.
            (0..count).try_for_each(|_| filesystem.lookup(ino, b".").map(drop)).unwrap_or_default();
        }
    }
}

fn refused(why: &str) -> Error {
    Error::Option(format!("rw is not possible: {why}").into())
}

fn gone() -> Error {
    Error::stopped(&"it could not be opened again when it was remounted rw".into())
}

/// The last of `ro` and `rw` in a list, and everything else.
fn split(list: &str) -> (Option<&str>, String) {
    let is_mode = |word: &&str| matches!(*word, "ro" | "rw");
    let others: Vec<&str> =
        list.split(',').filter(|word| !is_mode(word) && !word.is_empty()).collect();
    (list.split(',').rfind(is_mode), others.join(","))
}

/// The options in force once `list` has been added.
fn with(options: &OpenOptions, list: &str, read_only: bool) -> OpenOptions {
    let mut mount_options = split(&options.mount_options).1;
    if !mount_options.is_empty() && !list.is_empty() {
        mount_options.push(',');
    }
    mount_options.push_str(list);
    OpenOptions { read_only, mount_options, ..options.clone() }
}

/// Calls that the present volume answers; without one they fail, or give what stands behind `else`.
macro_rules! pass_on {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty $(, else $nothing:expr)?;)*) => {
        $(fn $name(&self, $($argument: $type),*) -> $result {
            match &self.current.read().filesystem {
                Some(filesystem) => filesystem.$name($($argument),*),
                None => pass_on!(@nothing $($nothing)?),
            }
        })*
    };
    (@nothing) => { Err(gone()) };
    (@nothing $nothing:expr) => { $nothing };
}

impl FileSystem for Reopened {
    fn root(&self) -> Ino {
        self.root
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attributes> {
        let current = self.current.read();
        let found = current.filesystem.as_ref().ok_or_else(gone)?.lookup(parent, name)?;
        if current.reading.is_some() {
            *self.references.lock().entry(found.ino).or_default() += 1;
        }
        Ok(found)
    }

    fn forget(&self, ino: Ino, count: u64) {
        let current = self.current.read();
        if let Some(filesystem) = &current.filesystem {
            filesystem.forget(ino, count);
        }
        if current.reading.is_some() {
            let mut references = self.references.lock();
            let left = references.get(&ino).map_or(0, |taken| taken.saturating_sub(count));
            if left == 0 {
                references.remove(&ino);
            } else {
                references.insert(ino, left);
            }
        }
    }

    /// While the volume is read-only there is no write-back, whose errors a handle would get.
    fn open(&self, ino: Ino, mode: OpenMode) -> Result<u64> {
        let current = self.current.read();
        let filesystem = current.filesystem.as_ref().ok_or_else(gone)?;
        let handle = filesystem.open(ino, mode)?;
        if current.reading.is_none() {
            return Ok(handle);
        }
        filesystem.release(ino, handle);
        Ok(0)
    }

    fn release(&self, ino: Ino, handle: u64) {
        if let Some(filesystem) = self.current.read().filesystem.as_ref().filter(|_| handle != 0) {
            filesystem.release(ino, handle);
        }
    }

    fn remount(&self, list: &str) -> Result<()> {
        {
            let current = self.current.read();
            if current.reading.is_none() {
                // It may wait for calls that wait to be thawed.
                return current.filesystem.as_ref().ok_or_else(gone)?.remount(list);
            }
        }
        let mut current = self.current.write();
        let (mode, others) = split(list);
        let filesystem = current.filesystem.as_ref().ok_or_else(gone)?;
        let Some(reading) = &current.reading else { return filesystem.remount(list) };
        if mode != Some("rw") {
            filesystem.remount(list)?;
            current.reading = Some(with(reading, &others, true));
            return Ok(());
        }
        filesystem.check_remount(&others)?;
        let options = with(reading, &others, false);
        (self.check)(&options).map_err(|why| refused(&why))?;
        self.begin_to_write(&mut current, &options)
    }

    fn check_remount(&self, list: &str) -> Result<()> {
        let current = self.current.read();
        let filesystem = current.filesystem.as_ref().ok_or_else(gone)?;
        match (&current.reading, split(list)) {
            (Some(reading), (Some("rw"), others)) => {
                filesystem.check_remount(&others)?;
                (self.check)(&with(reading, &others, false)).map_err(|why| refused(&why))
            }
            _ => filesystem.check_remount(list),
        }
    }

    pass_on! {
        ignores_case(directory: Ino) -> bool, else false;
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
        room(reserved: bool) -> u64, else 0;
        reserved_for() -> Option<ReservedFor>, else None;
        referenced() -> Vec<Ino>, else Vec::new();
        sync() -> Result<()>;
        trim(offset: u64, len: u64, minimum: u64) -> Result<u64>;
        label() -> Result<Vec<u8>>;
        set_label(label: &[u8]) -> Result<()>;
        time_granularity() -> Duration, else Duration::from_nanos(1);
        report() -> Report, else Report::new();
        freeze() -> Result<()>;
        thaw() -> Result<()>;
        is_frozen() -> bool, else false;
        shutdown(flush_log: bool) -> Result<()>;
        check_stopped() -> Result<()>;
        go_down(flags: GoingDown) -> Result<()>;
        abandon(reason: &str) -> Result<()>;
        unmount() -> Result<()>;
    }
}
