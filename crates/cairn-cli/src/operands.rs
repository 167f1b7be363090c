//! Operands of many commands: an image, and names on it.

use std::ffi::OsString;

use cairn_vfs::FileSystem;

use crate::failure::Outcome;
use crate::session::ImageArg;
use crate::{failure, pattern};

/// An image, and names on it.
#[derive(Clone, Debug, clap::Args)]
pub struct Operands {
    /// The image.
    #[command(flatten)]
    pub image: ImageArg,
    /// Paths on the image; patterns such as /etc/*.conf are expanded.
    #[arg(required = true, value_name = "PATHS")]
    pub paths: Vec<OsString>,
}

impl Operands {
    /// Does `work` for each path that the names stand for.
    ///
    /// # Errors
    /// The errors of `work`, together.
    pub fn each(&self, fs: &dyn FileSystem, mut work: impl FnMut(&[u8]) -> Outcome) -> Outcome {
        failure::each(pattern::expand(fs, &self.paths)?, |path| work(&path))
    }
}

/// An image, and optional names on it: without names, the root.
#[derive(Clone, Debug, clap::Args)]
pub struct OperandsOrRoot {
    /// The image.
    #[command(flatten)]
    pub image: ImageArg,
    /// Paths on the image; patterns such as /etc/*.conf are expanded. Without any, the root
    /// directory.
    #[arg(value_name = "PATHS")]
    pub paths: Vec<OsString>,
}

impl OperandsOrRoot {
    /// The paths that the names stand for.
    ///
    /// # Errors
    /// As [`pattern::expand`].
    pub fn expand(&self, fs: &dyn FileSystem) -> Outcome<Vec<Vec<u8>>> {
        if self.paths.is_empty() {
            Ok(vec![b"/".to_vec()])
        } else {
            pattern::expand(fs, &self.paths)
        }
    }
}

/// `--help` alone: `-h` has another meaning, as in coreutils. Goes with `disable_help_flag`.
#[derive(Clone, Debug, clap::Args)]
pub struct LongHelp {
    /// Print help.
    #[arg(long, action = clap::ArgAction::HelpLong)]
    pub help: Option<bool>,
}
