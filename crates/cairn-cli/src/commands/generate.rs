//! `cairn generate`: manual pages and shell completions, for `make install`.

use std::fs;
use std::path::PathBuf;

use clap_complete::Shell;

use crate::failure::{Failure, Outcome};

/// Arguments of `generate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn generate /usr/local/share")]
pub struct Args {
    /// The share directory: pages go to man/man1, completions to where each shell looks.
    pub share: PathBuf,
}

/// Writes the pages and completions of `program`.
///
/// # Errors
/// A file cannot be written.
pub fn run(args: &Args, mut program: clap::Command) -> Outcome {
    let directory = |below: &str| {
        let path = args.share.join(below);
        fs::create_dir_all(&path)
            .map(|()| path.clone())
            .map_err(|error| Failure::host(&path, &error))
    };
    let pages = directory("man/man1")?;
    clap_mangen::generate_to(program.clone(), &pages)
        .map_err(|error| Failure::host(&pages, &error))?;
    for (shell, below) in [
        (Shell::Bash, "bash-completion/completions"),
        (Shell::Zsh, "zsh/site-functions"),
        (Shell::Fish, "fish/vendor_completions.d"),
    ] {
        let path = directory(below)?;
        clap_complete::generate_to(shell, &mut program, "cairn", &path)
            .map_err(|error| Failure::host(&path, &error))?;
        if shell == Shell::Bash {
            // Bash looks for a file with the command's own name.
            let (from, to) = (path.join("cairn.bash"), path.join("cairn"));
            fs::rename(&from, &to).map_err(|error| Failure::host(&from, &error))?;
        }
    }
    Ok(())
}
