//! Why a daemon cannot be reached: one line each, which says what to do.

use std::io;
use std::path::PathBuf;

use cairn_base::system_error::with_remedy;

/// Errors of the control channel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// There is no socket in these places. Says why some were skipped.
    #[error(
        "its daemon has no control socket (looked for {}): unmount and mount again, with the same \
         XDG_RUNTIME_DIR as now", list(.0)
    )]
    NoSocket(Vec<(PathBuf, Option<String>)>),
    /// The daemon no longer listens.
    #[error("the daemon that served it is gone (its socket {} is stale): detach the mount, then \
        mount again", .0.display())]
    Gone(PathBuf),
    /// The mount has ended. Its device number may be that of another mount now.
    #[error("it is not mounted any more")]
    Unmounted,
    /// The mount belongs to another user.
    #[error("it was mounted by user {owner}: run as that user or as root")]
    Foreign {
        /// The daemon's user.
        owner: u32,
    },
    /// The socket's directory or the listening process belongs to another user.
    #[error("{} is not safe to use ({why}): remove it, then unmount and mount \
        again", path.display())]
    Unsafe {
        /// Directory or socket.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// No answer in time.
    #[error(
        "its daemon does not answer: it waits for the device or is stopped; try again, or look at \
         its state with ps"
    )]
    Silent,
    /// The answer is malformed.
    #[error("its daemon uses another protocol ({0}): use the cairn program that mounted it")]
    Language(String),
    /// The daemon answered with an error.
    #[error("{0}")]
    Refused(String),
    /// A system call failed.
    #[error(
        "control socket {}: {}", path.display(),
        with_remedy(source, "see that its directory can be written, or name another one with \
            XDG_RUNTIME_DIR")
    )]
    Io {
        /// Socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

fn list(places: &[(PathBuf, Option<String>)]) -> String {
    let shown = places.iter().map(|(path, why)| match why {
        Some(why) => format!("{}, but not in: {why}", path.display()),
        None => path.display().to_string(),
    });
    shown.collect::<Vec<String>>().join("; ")
}
