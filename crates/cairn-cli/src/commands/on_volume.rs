//! What a command is that works on a volume without mounting it: those that run it open the image
//! before and close it after.

use cairn_vfs::FileSystem;

use crate::failure::Outcome;
use crate::output::Output;
use crate::session::{Access, ImageArg};

/// The interface of these commands.
pub trait OnVolume {
    /// The image, as the user names it.
    fn image(&self) -> &ImageArg;

    /// What it does to the volume.
    fn access(&self) -> Access;

    /// Does it print one value in JSON, whatever happens?
    fn json(&self) -> bool {
        false
    }

    /// Does what must come before the image is opened: waiting for programs that may have it open.
    ///
    /// # Errors
    /// What the command reports.
    fn prepare(&self) -> Outcome {
        Ok(())
    }

    /// Does it.
    ///
    /// # Errors
    /// What the command reports.
    fn run(&self, fs: &dyn FileSystem, output: &mut Output<'_>) -> Outcome;
}
