//! The interface of commands that work on a volume without mounting it. The caller opens the image
//! before the command and closes it afterwards.

use cairn_vfs::FileSystem;

use crate::failure::Outcome;
use crate::output::Output;
use crate::session::{Access, ImageArg};

/// The interface of these commands.
pub trait OnVolume {
    /// The image, as the user names it.
    fn image(&self) -> &ImageArg;

    /// Whether it reads or writes the volume.
    fn access(&self) -> Access;

    /// True if it prints one JSON value even after a failure.
    fn json(&self) -> bool {
        false
    }

    /// Does the work that must come before the image is opened, such as waiting for programs that
    /// may have it open.
    ///
    /// # Errors
    /// What the command reports.
    fn prepare(&self) -> Outcome {
        Ok(())
    }

    /// Runs the command.
    ///
    /// # Errors
    /// What the command reports.
    fn run(&self, fs: &dyn FileSystem, output: &mut Output<'_>) -> Outcome;
}
