//! `cairn generate`: manual pages and shell completions, for `make install`.

mod completions;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use clap_complete::Shell;

use super::build::failure;
use super::mount::helper;
use crate::failure::{Failure, Outcome};

/// Arguments of `generate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn generate /usr/local/share")]
pub struct Args {
    /// The share directory: pages go to man/man1 and man/man8, completions to where each shell
    /// looks.
    pub share: PathBuf,
}

/// Writes the pages and completions of `program`.
///
/// # Errors
/// A file cannot be written.
pub fn run(args: &Args, program: &clap::Command) -> Outcome {
    let directory = |below: &str| {
        let path = args.share.join(below);
        fs::create_dir_all(&path)
            .map(|()| path.clone())
            .map_err(|error| Failure::host(&path, &error))
    };
    let made = tempfile::tempdir().map_err(|error| Failure::host(std::env::temp_dir(), &error))?;
    let made = made.path();
    let pages = directory("man/man1")?;
    clap_mangen::generate_to(program.clone(), made).map_err(|error| Failure::host(made, &error))?;
    for page in fs::read_dir(made).map_err(|error| Failure::host(made, &error))? {
        let page = page.map_err(|error| Failure::host(made, &error))?;
        install(&page.path(), &pages.join(page.file_name()))?;
    }
    let pages = directory("man/man8")?;
    for (name, page) in helper::pages() {
        write(page.as_bytes(), &pages.join(name))?;
    }
    let (name, page) = crate::commands::umount::helper::PAGE;
    write(page.as_bytes(), &pages.join(name))?;
    let mut program = completions::shown(program);
    for (shell, below) in [
        (Shell::Bash, "bash-completion/completions"),
        (Shell::Zsh, "zsh/site-functions"),
        (Shell::Fish, "fish/vendor_completions.d"),
    ] {
        let path = directory(below)?;
        let file = clap_complete::generate_to(shell, &mut program, "cairn", made)
            .map_err(|error| Failure::host(made, &error))?;
        // Bash looks for a file with the command's own name.
        let own = OsStr::new("cairn");
        let name = if shell == Shell::Bash { Some(own) } else { file.file_name() };
        install(&file, &path.join(name.unwrap_or(own)))?;
    }
    Ok(())
}

/// Puts a file that was made into its place.
fn install(from: &Path, to: &Path) -> Outcome {
    write(&fs::read(from).map_err(|error| Failure::host(from, &error))?, to)
}

fn write(contents: &[u8], to: &Path) -> Outcome {
    cairn_build::replace(to, contents).map_err(failure)
}
