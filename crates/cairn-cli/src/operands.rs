//! What a command is given to work on, and that it does its work for all of it: as in coreutils, what cannot be done for one name
//! keeps no other from its turn, and the status tells of the first failure.

use std::ffi::OsString;

use cairn_vfs::FileSystem;

use crate::failure::{Failure, Outcome, Status};
use crate::pattern;
use crate::session::ImageArg;

/// An image, and names on it.
#[derive(Clone, Debug, clap::Args)]
pub struct Operands {
    /// The image.
    #[command(flatten)]
    pub image: ImageArg,
    /// Names on the image; patterns stand for those that match.
    #[arg(required = true, value_name = "PATHS")]
    pub paths: Vec<OsString>,
}

impl Operands {
    /// Does `work` for each path that the names stand for.
    ///
    /// # Errors
    /// Those of `work`, together.
    pub fn each(&self, fs: &dyn FileSystem, mut work: impl FnMut(&[u8]) -> Outcome) -> Outcome {
        each(pattern::expand(fs, &self.paths)?, |path| work(&path))
    }
}

/// An image, and names on it that may be left out: the root then.
#[derive(Clone, Debug, clap::Args)]
pub struct OperandsOrRoot {
    /// The image.
    #[command(flatten)]
    pub image: ImageArg,
    /// Names on the image; patterns stand for those that match. The root if there are none.
    #[arg(value_name = "PATHS")]
    pub paths: Vec<OsString>,
}

impl OperandsOrRoot {
    /// The paths that the names stand for.
    ///
    /// # Errors
    /// As [`pattern::expand`].
    pub fn expand(&self, fs: &dyn FileSystem) -> Outcome<Vec<Vec<u8>>> {
        if self.paths.is_empty() { Ok(vec![b"/".to_vec()]) } else { pattern::expand(fs, &self.paths) }
    }
}

/// `--help` alone: `-h` has another meaning, as in coreutils. Goes with `disable_help_flag`.
#[derive(Clone, Debug, clap::Args)]
pub struct LongHelp {
    /// Print help.
    #[arg(long, action = clap::ArgAction::HelpLong)]
    pub help: Option<bool>,
}

/// Does `work` for each of these, whatever became of those before.
///
/// # Errors
/// Those of `work`, together. A reader of standard output that has gone away ends it at once.
pub fn each<T>(operands: impl IntoIterator<Item = T>, mut work: impl FnMut(T) -> Outcome) -> Outcome {
    let mut failed: Option<Failure> = None;
    for operand in operands {
        match work(operand) {
            Ok(()) => {}
            Err(gone) if gone.status == Status::Success => return Err(failed.unwrap_or(gone)),
            Err(failure) => {
                failed = Some(match failed {
                    Some(before) => before.and(failure),
                    None => failure,
                });
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_have_their_turn_and_the_first_failure_gives_the_status() {
        let mut done = Vec::new();
        let failure = each([1, 2, 3, 4], |n| {
            done.push(n);
            let status = if n == 2 { Status::Corrupt } else { Status::Failed };
            if n % 2 == 0 { Err(Failure::new(status, n.to_string())) } else { Ok(()) }
        });
        let failure = failure.unwrap_err();
        assert_eq!((done, failure.status, failure.lines().count()), (vec![1, 2, 3, 4], Status::Corrupt, 2));
        let mut turns = 0;
        let gone = each([1, 2], |_| {
            turns += 1;
            Err(Failure::nobody_listens())
        });
        assert_eq!((gone.unwrap_err().status, turns), (Status::Success, 1));
    }
}
