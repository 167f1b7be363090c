//! State that all requests share.
//!
//! FUSE's root is node 1; a filesystem's root has a number of its own (ext4: 2). The two numbers
//! are exchanged, so that every inode has a node.
//!
//! A panic in an operation means that an invariant of Cairn is broken: the caller gets EIO, the
//! volume is shut down so that nothing wrong reaches the disk, and the session continues until the
//! unmount.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cairn_base::{Ino, memory};
use cairn_vfs::name::NAME_MAX;
use cairn_vfs::{Attributes, Error, FileKind, FileSystem, Result, protection, root_reserved};
use fuser::InitFlags;
use rustix::io::Errno;

use crate::convert;
use crate::counters::{Counters, Operation};
use crate::credentials::Credentials;
use crate::guard::Guard;
use crate::kernel::Kernel;
use crate::listing::Damaged;
use crate::options::MountOptions;
use crate::owners::Owners;
use crate::removals::Removals;
use crate::synchronous::Synchronous;
use crate::wire::abi::{Attr, EntryOut, Statx};
use crate::writers::Writers;

/// FUSE's number of the root.
const ROOT_NODE: u64 = 1;

/// How long the kernel may keep attributes of a file that is open for writing.
const WRITTEN_TIMEOUT: Duration = Duration::from_secs(1);

/// Shared by all threads.
pub(crate) struct Core {
    fs: Arc<dyn FileSystem>,
    root: Ino,
    timeout: Duration,
    pub(crate) no_open: bool,
    pub(crate) noxattr: bool,
    pub(crate) private: bool,
    owners: Owners,
    pub(crate) kernel: Kernel,
    pub(crate) synchronous: Synchronous,
    /// The features that the kernel and Cairn agreed on; set by the handshake.
    pub(crate) agreed: Arc<OnceLock<InitFlags>>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) removals: Removals,
    pub(crate) damaged: Damaged,
    pub(crate) guard: Guard,
    pub(crate) writers: Writers,
    pub(crate) closing: Closing,
}

/// What DESTROY calls, once.
#[derive(Clone, Default)]
pub(crate) struct Closing(Arc<OnceLock<Box<dyn Fn() + Send + Sync>>>);

impl Closing {
    pub(crate) fn set(&self, close: Box<dyn Fn() + Send + Sync>) {
        // A session has one owner, who sets it once.
        let _ = self.0.set(close);
    }

    pub(crate) fn call(&self) {
        if let Some(close) = self.0.get() {
            close();
        }
    }
}

impl Core {
    pub(crate) fn new(fs: Arc<dyn FileSystem>, options: &MountOptions) -> Self {
        let counters = Arc::<Counters>::default();
        let synchronous = Synchronous::default();
        synchronous.follow(options);
        Self {
            synchronous,
            root: fs.root(),
            fs,
            timeout: options.timeout,
            no_open: options.no_open,
            noxattr: options.noxattr,
            private: options.private,
            owners: options.owners.clone(),
            kernel: Kernel::new(options.writeback_cache),
            agreed: Arc::default(),
            guard: Guard::new(options.writeback_cache, counters.clone()),
            counters,
            removals: Removals::new(),
            damaged: Damaged::default(),
            writers: Writers::default(),
            closing: Closing::default(),
        }
    }

    pub(crate) fn fs(&self) -> &dyn FileSystem {
        &*self.fs
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.fs.is_frozen()
    }

    /// Runs one operation: its error becomes an errno, its panic EIO.
    pub(crate) fn run<T>(
        &self,
        what: Operation,
        operation: impl FnOnce(&dyn FileSystem) -> Result<T>,
    ) -> Result<T, Errno> {
        let _counted = self.counters.begin(what);
        let admitted = |fs: &dyn FileSystem| {
            if !what.gives_up() {
                memory::admit("a request")?;
            }
            operation(fs)
        };
        match catch_unwind(AssertUnwindSafe(|| admitted(&*self.fs))) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                // That a name or an attribute is not there is an answer: to stat(2), and to the
                // kernel's own question for capabilities before each write.
                if !matches!(error, Error::NotFound | Error::NoAttribute) {
                    self.counters.count_error();
                }
                match error {
                    Error::Corrupt(_) | Error::Io(_) => tracing::error!("{what}: {error}"),
                    // Not logged: the kernel asks most files for extended attributes, and few have
                    // them.
                    Error::NoAttribute => {}
                    _ => tracing::debug!("{what} is answered with: {error}"),
                }
                if matches!(error, Error::Corrupt(_) | Error::Io(_) | Error::ReadOnly(_)) {
                    self.notice_stop();
                }
                Err(Errno::from_raw_os_error(error.errno()))
            }
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
                let text =
                    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
                tracing::error!("{what} panicked, the volume is shut down: {text}");
                let reason = format!("{what} panicked: {text}");
                match catch_unwind(AssertUnwindSafe(|| self.fs.abandon(&reason))) {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => {
                        tracing::error!(%error, "the volume could not be shut down: unmount it");
                    }
                    // The panic hook has reported it.
                    Err(_) => tracing::error!("shutting the volume down panicked: unmount it"),
                }
                self.notice_stop();
                Err(Errno::IO)
            }
        }
    }

    /// As [`Core::run`], for an operation that takes much memory. After ENOMEM, caches are shrunk,
    /// dirty pages are written, and the operation is tried once more.
    pub(crate) fn run_taking_memory<T>(
        &self,
        what: Operation,
        mut operation: impl FnMut(&dyn FileSystem) -> Result<T>,
    ) -> Result<T, Errno> {
        match self.run(what, &mut operation) {
            Err(Errno::NOMEM) => {
                memory::relieve();
                // Errors of these writes are reported to their own callers, not to this one.
                let _ = self.run(Operation::SyncFs, |fs| fs.sync());
                memory::relieve();
                self.run(what, operation)
            }
            done => done,
        }
    }

    /// As [`Core::run_taking_memory`], for an operation that takes space on behalf of `sender`.
    /// ENOSPC counts only after removed inodes have freed their blocks.
    pub(crate) fn run_taking_space<T>(
        &self,
        what: Operation,
        sender: &Credentials,
        operation: impl FnMut(&dyn FileSystem) -> Result<T>,
    ) -> Result<T, Errno> {
        let may_use_reserved = match what {
            // The length of these requests has no limit.
            Operation::Fallocate | Operation::CopyFileRange => sender.may_use_reserved(self.fs()),
            _ => sender.may_use_reserved_now(self.fs()),
        };
        root_reserved::denied_if(!may_use_reserved, || {
            self.run_taking_admitted_space(what, operation)
        })
    }

    /// As [`Core::run_taking_space`], for data from the kernel's cache, which has no sender. For
    /// data of a write(2), [`crate::guard`] checked the root-reserved blocks when the kernel
    /// accepted it. For shared mappings, the users who have the file open decide.
    pub(crate) fn run_taking_cached_space<T>(
        &self,
        node: u64,
        range: &Range<u64>,
        operation: impl FnMut(&dyn FileSystem) -> Result<T>,
    ) -> Result<T, Errno> {
        let may_use_reserved = self.fs.reserved_for().is_none()
            || self.writers.are_admitted(node)
            || self.guard.is_granted(self.fs(), node, range);
        root_reserved::denied_if(!may_use_reserved, || {
            self.run_taking_admitted_space(Operation::Write, operation)
        })
    }

    /// As [`Core::run_taking_space`], after the decision on root-reserved blocks.
    fn run_taking_admitted_space<T>(
        &self,
        what: Operation,
        mut operation: impl FnMut(&dyn FileSystem) -> Result<T>,
    ) -> Result<T, Errno> {
        self.removals.taking_space(|| {
            let mut in_vain = false;
            let done = self.run_taking_memory(what, |fs| {
                operation(fs)
                    .inspect_err(|error| in_vain = matches!(error, Error::NoAttributeSpace))
            });
            // More space on the volume would not help, so this error is not tried again.
            if in_vain { Ok(done) } else { done.map(Ok) }
        })?
    }

    /// If the volume has stopped, makes the kernel ask before each write.
    pub(crate) fn notice_stop(&self) {
        if self.fs.check_stopped().is_err() && self.guard.refuse() {
            // Twice, because requests that began before the stop may have sent valid attributes
            // after the first round.
            for _ in 0..2 {
                let all = self.fs.referenced();
                all.into_iter().for_each(|ino| self.kernel.attributes_changed(self.node(ino)));
            }
        }
    }

    /// True if the kernel has agreed to this feature.
    pub(crate) fn agreed(&self, flag: InitFlags) -> bool {
        self.agreed.get().is_some_and(|agreed| agreed.contains(flag))
    }

    /// Removes a file's privileges before a change for which the kernel does not say whether they
    /// may stay.
    pub(crate) fn guard_privileges(
        &self,
        fs: &dyn FileSystem,
        node: u64,
        caller: &Credentials,
    ) -> Result<()> {
        self.drop_unseen_capabilities(fs, self.ino(node))?;
        // The sender is looked up only if the file has privileges, because the look-up is slow.
        if protection::has_privileges(fs, self.ino(node))? && !caller.is_root() {
            self.drop_privileges(fs, node, caller)?;
        }
        Ok(())
    }

    /// Removes a file's capabilities before a change of its contents or its owner, if the kernel
    /// does not see them: otherwise it asks for that itself.
    pub(crate) fn drop_unseen_capabilities(&self, fs: &dyn FileSystem, ino: Ino) -> Result<()> {
        if self.noxattr { protection::drop_capabilities(fs, ino).map(drop) } else { Ok(()) }
    }

    /// Removes a file's privileges, in the kernel's view, too.
    pub(crate) fn drop_privileges(
        &self,
        fs: &dyn FileSystem,
        node: u64,
        caller: &Credentials,
    ) -> Result<()> {
        if protection::drop_privileges(fs, self.ino(node), |gid| caller.is_member(gid))? {
            self.kernel.attributes_changed(node);
        }
        Ok(())
    }

    /// Ends a call that may have changed names in these directories.
    pub(crate) fn names_changed<T>(
        &self,
        done: Result<T, Errno>,
        directories: &[Ino],
    ) -> Result<T, Errno> {
        let done = done?;
        if self.synchronous.names() {
            directories.iter().try_for_each(|directory| self.bring_to_disk(*directory))?;
        }
        Ok(done)
    }

    /// Ends a call that may have changed this inode.
    pub(crate) fn attributes_changed<T>(
        &self,
        done: Result<T, Errno>,
        ino: Ino,
    ) -> Result<T, Errno> {
        let done = done?;
        if self.synchronous.attributes() {
            self.bring_to_disk(ino)?;
        }
        Ok(done)
    }

    fn bring_to_disk(&self, ino: Ino) -> Result<(), Errno> {
        self.run(Operation::Fsync, |fs| fs.fsync(ino, 0, false))
    }

    /// The inode of a node.
    pub(crate) fn ino(&self, node: u64) -> Ino {
        Ino(self.swap(node))
    }

    /// The node of an inode.
    pub(crate) fn node(&self, ino: Ino) -> u64 {
        self.swap(ino.get())
    }

    fn swap(&self, number: u64) -> u64 {
        match number {
            ROOT_NODE => self.root.get(),
            number if number == self.root.get() => ROOT_NODE,
            number => number,
        }
    }

    /// True if only the kernel may have the newest data of a file.
    fn may_be_dirty(&self, found: &Attributes) -> bool {
        self.kernel.has_writeback_cache()
            && found.kind == FileKind::Regular
            && (self.no_open && found.sectors == 0 || self.writers.has(self.node(found.ino)))
    }

    /// Blocks of 512 bytes. Programs such as `tar -S` take a file without blocks for a hole, but
    /// the kernel may have data of it: then it has one.
    pub(crate) fn sectors(&self, found: &Attributes) -> u64 {
        found.sectors.max(u64::from(found.sectors == 0 && self.may_be_dirty(found)))
    }

    pub(crate) fn attributes(&self, found: &Attributes) -> Attr {
        let (uid, gid) = (self.owners.user(found.uid), self.owners.group(found.gid));
        Attr { blocks: self.sectors(found), uid, gid, ..convert::attributes(found) }
    }

    pub(crate) fn statx(&self, found: &Attributes) -> Statx {
        let (uid, gid) = (self.owners.user(found.uid), self.owners.group(found.gid));
        Statx { blocks: self.sectors(found), uid, gid, ..convert::statx(found) }
    }

    /// How long the kernel may keep the attributes: seconds and nanoseconds.
    pub(crate) fn validity(&self, found: &Attributes) -> (u64, u32) {
        if self.guard.watches(found) {
            return (0, 0);
        }
        // The number of blocks changes with write-back.
        let changes = self.may_be_dirty(found);
        let timeout = if changes { self.timeout.min(WRITTEN_TIMEOUT) } else { self.timeout };
        (timeout.as_secs(), timeout.subsec_nanos())
    }

    /// The answer that hands out an inode.
    pub(crate) fn entry(&self, found: &Attributes) -> EntryOut {
        let nodeid = self.node(found.ino);
        let attr = Attr { ino: nodeid, ..self.attributes(found) };
        let (attr_valid, attr_valid_nsec) = self.validity(found);
        EntryOut {
            nodeid,
            generation: found.generation.into(),
            attr,
            attr_valid,
            attr_valid_nsec,
            ..self.no_entry()
        }
    }

    /// The answer that hands out an inode found by a name in `parent`.
    pub(crate) fn entry_in(
        &self,
        fs: &dyn FileSystem,
        parent: Ino,
        found: &Attributes,
    ) -> EntryOut {
        self.kept_in(fs, parent, self.entry(found))
    }

    /// The answer for a name that does not exist in `parent`.
    pub(crate) fn no_entry_in(&self, fs: &dyn FileSystem, parent: Ino) -> EntryOut {
        self.kept_in(fs, parent, self.no_entry())
    }

    /// An answer about a name in `parent`, as long as it may be kept there.
    fn kept_in(&self, fs: &dyn FileSystem, parent: Ino, entry: EntryOut) -> EntryOut {
        match fs.ignores_case(parent) {
            true => EntryOut { entry_valid: 0, entry_valid_nsec: 0, ..entry },
            false => entry,
        }
    }

    /// The answer for a name that does not exist.
    fn no_entry(&self) -> EntryOut {
        EntryOut {
            entry_valid: self.timeout.as_secs(),
            entry_valid_nsec: self.timeout.subsec_nanos(),
            ..EntryOut::default()
        }
    }
}

/// A name, if it is short enough. The kernel lets 1024 bytes through.
pub(crate) fn checked_name(name: &[u8]) -> Result<&[u8]> {
    if name.len() > NAME_MAX { Err(Error::NameTooLong) } else { Ok(name) }
}

#[cfg(test)]
mod tests {
    use cairn_testkit::model::Model;

    use super::*;

    /// A name was removed just now, but its blocks do not help an inode that has no room left.
    #[test]
    fn an_attribute_that_fits_nowhere_is_refused_at_once() {
        let core = Core::new(Arc::new(Model::default()), &MountOptions::default());
        core.removals.note();
        let mut tries = 0;
        let refused = core.run_taking_admitted_space(Operation::SetXattr, |_| {
            tries += 1;
            Err::<(), _>(Error::NoAttributeSpace)
        });
        assert_eq!((refused, tries), (Err(Errno::NOSPC), 1));
        assert!(core.removals.is_expected(), "nobody has waited for what was removed");
    }
}
