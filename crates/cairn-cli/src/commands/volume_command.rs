//! The commands that work on a volume without mounting it: each opens the image, works, and closes
//! it again (`cairn ls IMAGE`).

use clap::Subcommand;

use super::on_volume::OnVolume;
use super::{
    cat, chmod, chown, cp, df, du, find, get, getfattr, ln, ls, mkdir, mknod, mv, put, rm, rmdir,
    setfattr, stat, touch, truncate,
};
use crate::failure::Outcome;
use crate::json;
use crate::output::{Output, with_stdout, with_stdout_held_back};
use crate::session::{Access, with_volume};

/// The commands.
#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// List files on an image.
    Ls(ls::Args),
    /// Print files of an image.
    Cat(cat::Args),
    /// Show the attributes of files on an image.
    Stat(stat::Args),
    /// Copy files and trees out of an image.
    Get(get::Args),
    /// Copy files and trees into an image.
    Put(put::Args),
    /// Make directories on an image.
    Mkdir(mkdir::Args),
    /// Remove files and trees from an image.
    Rm(rm::Args),
    /// Remove empty directories from an image.
    Rmdir(rmdir::Args),
    /// Make links on an image.
    Ln(ln::Args),
    /// Rename or move on an image.
    Mv(mv::Args),
    /// Change permissions on an image.
    Chmod(chmod::Args),
    /// Change owners on an image.
    Chown(chown::Args),
    /// Show how much space is free on an image.
    Df(df::Args),
    /// Show how much space files and trees on an image take.
    Du(du::Args),
    /// Look for files on an image.
    Find(find::Args),
    /// Copy files and trees inside an image.
    Cp(cp::Args),
    /// Set times of files on an image; make empty files.
    Touch(touch::Args),
    /// Cut or extend files on an image.
    Truncate(truncate::Args),
    /// Make device nodes, FIFOs and sockets on an image.
    Mknod(mknod::Args),
    /// Show extended attributes of files on an image.
    Getfattr(getfattr::Args),
    /// Set or remove extended attributes of files on an image.
    Setfattr(setfattr::Args),
}

impl VolumeCommand {
    /// The command itself.
    #[must_use]
    pub fn command(&self) -> &dyn OnVolume {
        match self {
            Self::Ls(args) => args,
            Self::Cat(args) => args,
            Self::Stat(args) => args,
            Self::Get(args) => args,
            Self::Put(args) => args,
            Self::Mkdir(args) => args,
            Self::Rm(args) => args,
            Self::Rmdir(args) => args,
            Self::Ln(args) => args,
            Self::Mv(args) => args,
            Self::Chmod(args) => args,
            Self::Chown(args) => args,
            Self::Df(args) => args,
            Self::Du(args) => args,
            Self::Find(args) => args,
            Self::Cp(args) => args,
            Self::Touch(args) => args,
            Self::Truncate(args) => args,
            Self::Mknod(args) => args,
            Self::Getfattr(args) => args,
            Self::Setfattr(args) => args,
        }
    }

    /// Opens the image, runs the command, closes the image.
    ///
    /// # Errors
    /// The image cannot be opened, or what the command reports.
    pub fn run_alone(&self) -> Outcome {
        let command = self.command();
        command.prepare()?;
        let run = |output: &mut Output<'_>| match self {
            Self::Df(args) => df::each(args, output),
            _ => on_image(command, output),
        };
        // Contents may have any length, and commands that change files print at once.
        let streams =
            matches!(self, Self::Cat(_) | Self::Get(_)) || command.access() != Access::Read;
        if streams { with_stdout(run) } else { with_stdout_held_back(run) }
    }
}

/// Opens the image, runs the command and closes the image. With `--json` a failure to open the
/// image is printed as JSON.
fn on_image(command: &dyn OnVolume, output: &mut Output<'_>) -> Outcome {
    let mut is_open = false;
    let done = with_volume(command.image(), command.access(), |fs| {
        is_open = true;
        command.run(fs, output)
    });
    match done {
        Err(failure) if command.json() && !is_open => {
            json::failure(output, &failure)?;
            Err(failure)
        }
        done => done,
    }
}
