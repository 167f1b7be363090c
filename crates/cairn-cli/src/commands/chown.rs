//! `cairn chown`.

use std::ffi::OsString;

use cairn_vfs::{FileSystem, SetAttributes};

use super::on_volume::OnVolume;
use crate::failure::Outcome;
use crate::operands::LongHelp;
use crate::output::Output;
use crate::pattern;
use crate::session::{Access, ImageArg};
use crate::tree::{self, Reach};

/// Arguments of `chown`.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Example:
  cairn chown -R disk.img 1000:1000 /home/pi

Owners are numbers: the names on this host need not be those of the image."
)]
pub struct Args {
    /// --help.
    #[command(flatten)]
    pub help: LongHelp,
    /// Go into directories.
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Change a symbolic link itself, not its target.
    #[arg(short = 'h', long)]
    pub no_dereference: bool,
    /// The image.
    #[command(flatten)]
    pub image: ImageArg,
    /// UID, UID:GID or :GID.
    #[arg(value_parser = parse_owner)]
    pub owner: Owner,
    /// What to change.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

/// Which of the two to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User, if it changes.
    pub uid: Option<u32>,
    /// Group, if it changes.
    pub gid: Option<u32>,
}

/// Parses `UID`, `UID:GID` or `:GID`.
///
/// # Errors
/// It is none of these.
pub fn parse_owner(text: &str) -> Result<Owner, String> {
    let number = |part: &str| match part {
        "" => Ok(None),
        // 2^32 - 1 means "leave alone" to the kernel.
        digits => digits
            .parse()
            .ok()
            .filter(|id| *id != u32::MAX)
            .map(Some)
            .ok_or("give numbers: UID, UID:GID or :GID"),
    };
    let (uid, gid) = text.split_once(':').unwrap_or((text, ""));
    let owner = Owner { uid: number(uid)?, gid: number(gid)? };
    if owner.uid.is_none() && owner.gid.is_none() {
        return Err("give UID, UID:GID or :GID".into());
    }
    Ok(owner)
}

impl OnVolume for Args {
    fn image(&self) -> &ImageArg {
        &self.image
    }

    fn access(&self) -> Access {
        Access::Write
    }

    fn run(&self, fs: &dyn FileSystem, _: &mut Output<'_>) -> Outcome {
        apply(fs, self)
    }
}

/// Changes owners. As chown(2) by anyone but root, it takes set-user-id and set-group-id from
/// regular files.
///
/// # Errors
/// A path does not exist, or the volume refuses.
pub fn apply(fs: &dyn FileSystem, args: &Args) -> Outcome {
    let set = SetAttributes {
        uid: args.owner.uid,
        gid: args.owner.gid,
        kill_privileges: true,
        ..Default::default()
    };
    let reach =
        Reach { recursive: args.recursive, follow: !args.no_dereference && !args.recursive };
    tree::change(fs, pattern::expand(fs, &args.paths)?, reach, &mut |attributes| {
        fs.setattr(attributes.ino, &set).map(drop)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners() {
        assert_eq!(parse_owner("0"), Ok(Owner { uid: Some(0), gid: None }));
        assert_eq!(parse_owner("10:20"), Ok(Owner { uid: Some(10), gid: Some(20) }));
        assert_eq!(parse_owner(":20"), Ok(Owner { uid: None, gid: Some(20) }));
        for bad in ["", ":", "root", "1:x", "4294967295", "-1"] {
            assert!(parse_owner(bad).is_err(), "{bad}");
        }
    }
}
