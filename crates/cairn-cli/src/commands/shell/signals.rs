//! What signals do to a shell: the running command is completed, the volume is unmounted, and the
//! process ends with 128 and the signal's number. No command that was done is lost.
//!
//! Locking: the lock is held while a command runs, and from the end of the script on. The thread
//! that handles signals takes it before it unmounts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{io, process};

use cairn_base::thread::spawn;
use cairn_vfs::FileSystem;
use signal_hook::low_level::signal_name;

use crate::failure::{Failure, Status};
use crate::output::complain;

/// Keeps signals from ending the process in the middle of a command.
#[derive(Clone, Default)]
pub(super) struct Commands(Arc<Mutex<()>>);

impl Commands {
    /// Begins a command, which ends when the guard is dropped.
    pub(super) fn begin(&self) -> MutexGuard<'_, ()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread that handles the signals.
    ///
    /// # Errors
    /// A signal handler or the thread could not be made.
    pub(super) fn end_on_signal(&self, filesystem: Arc<dyn FileSystem>) -> io::Result<()> {
        let mut signals = crate::signals::ending()?;
        let commands = self.clone();
        spawn("signals", move || {
            if let Some(signal) = signals.forever().next() {
                let _running = commands.begin();
                end(&*filesystem, signal);
            }
        })?;
        Ok(())
    }
}

fn end(filesystem: &dyn FileSystem, signal: i32) {
    if let Err(error) = filesystem.unmount() {
        complain(Failure::volume("unmount", &error));
        process::exit(i32::from(Status::Io as u8));
    }
    let name = signal_name(signal).unwrap_or("a signal");
    complain(format_args!("ended by {name}: the commands before it are in the image"));
    process::exit(128 + signal);
}
