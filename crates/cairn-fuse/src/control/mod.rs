//! The control channel of a live mount: a Unix socket on which the daemon reports its counters and
//! accepts new options.
//!
//! | module | what |
//! |---|---|
//! | `place` | which directory and name the socket of a mount has |
//! | `protocol` | one JSON object a line, with a version (docs/control.md) |
//! | `server` | the daemon's side |
//! | `client` | the side of `cairn stats`, `remount`, `freeze`, `check` and `umount` |
//!
//! Root and the daemon's user may send requests. The socket's directory is closed to others, and
//! the server also checks the peer's credentials.
//!
//! Invariant: a client can be slow, silent or gone without holding up the daemon, its end, or
//! requests of the kernel. Every client has a thread of its own, there is a limit to them, and
//! every read and write has a time limit. A client that holds a freeze may be silent as long as it
//! is there.

mod client;
mod error;
mod place;
mod protocol;
mod server;

#[cfg(test)]
mod tests;

pub use client::{Client, Ending, Held, clear};
pub use error::ControlError;
pub use protocol::VERSION;
pub use server::{Server, Waiting, serve_client};

use std::time::Duration;

use cairn_base::stats::Report;

/// A freeze that lasts as long as this exists.
pub trait Hold: Send {
    /// Ends it.
    ///
    /// # Errors
    /// It has ended before, or the volume could not be written.
    fn end(&mut self) -> Result<(), String>;
}

/// What a daemon does for its clients. Called by several threads.
pub trait Control: Send + Sync {
    /// All counters, state and options. Must not wait for the disk.
    fn stats(&self) -> Report;

    /// Changes options; all or nothing. The text of a refusal names the option and says what to do.
    ///
    /// # Errors
    /// An option is unknown, malformed or cannot be changed now; nothing has changed.
    fn remount(&self, options: &str) -> Result<(), String>;

    /// Freezes the volume, and thaws it after `limit` if it is still frozen. Has no effect if the
    /// client goes before the volume is frozen; `is_awaited` tells whether it is still there. The
    /// text of a refusal says what to do.
    ///
    /// # Errors
    /// The volume is frozen already, or could not be written, or the client has gone.
    fn freeze(&self, limit: Option<Duration>, is_awaited: &dyn Fn() -> bool) -> Result<(), String>;

    /// As [`Control::freeze`] without a limit. The volume is thawed when the result is dropped, if
    /// this freeze is still in force.
    ///
    /// # Errors
    /// As [`Control::freeze`].
    fn hold(&self, is_awaited: &dyn Fn() -> bool) -> Result<Box<dyn Hold>, String>;

    /// Thaws it.
    ///
    /// # Errors
    /// The volume is not frozen, or could not be written.
    fn thaw(&self) -> Result<(), String>;

    /// Writes everything to the disk and ends the mount, even if it is in use. Returns when the end
    /// has begun; the text of a refusal says what to do.
    ///
    /// # Errors
    /// The mount cannot be ended.
    fn end(&self) -> Result<(), String>;
}
