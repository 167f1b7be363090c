//! `cairn truncate`.

use cairn_vfs::{Error, FileSystem, NewInode, SetAttributes, walk};

use super::destination::{UMASK, create_plain};
use super::on_volume::OnVolume;
use crate::failure::Outcome;
use crate::operands::Operands;
use crate::output::Output;
use crate::session::{Access, ImageArg};
use crate::tree::unmade;

/// Arguments of `truncate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn truncate -s 64M disk.img /var/swap

What is added is a hole. Files that do not exist are made. A size may have a sign before it, as \
with truncate(1): + extends by it, - reduces by it, < reduces to at most it, > extends to at least \
it, / rounds down to a multiple of it, % rounds up.")]
pub struct Args {
    /// Make no files.
    #[arg(short = 'c', long)]
    pub no_create: bool,
    /// The new size, or with a sign before it a change: 0, 64M, +4K (see below).
    #[arg(short = 's', long, allow_hyphen_values = true, value_parser = parse)]
    pub size: Size,
    /// Files to cut or extend.
    #[command(flatten)]
    pub operands: Operands,
}

/// A size, or a change of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Exactly.
    To(u64),
    /// More.
    Add(u64),
    /// Less; zero at least.
    Less(u64),
    /// Not more.
    AtMost(u64),
    /// Not less.
    AtLeast(u64),
    /// Rounded down to a multiple.
    Down(u64),
    /// Rounded up to a multiple.
    Up(u64),
}

fn parse(text: &str) -> Result<Size, String> {
    let (kind, number): (fn(u64) -> Size, _) = match text.as_bytes().first() {
        Some(b'+') => (Size::Add, &text[1..]),
        Some(b'-') => (Size::Less, &text[1..]),
        Some(b'<') => (Size::AtMost, &text[1..]),
        Some(b'>') => (Size::AtLeast, &text[1..]),
        Some(b'/') => (Size::Down, &text[1..]),
        Some(b'%') => (Size::Up, &text[1..]),
        _ => (Size::To, text),
    };
    let size = cairn_base::options::parse_size(number).map(kind);
    size.filter(|size| !matches!(size, Size::Down(0) | Size::Up(0))).ok_or_else(|| {
        "give bytes, or a number with K, M, G or T, with + - < > / or % for a change".into()
    })
}

impl OnVolume for Args {
    fn image(&self) -> &ImageArg {
        &self.operands.image
    }

    fn access(&self) -> Access {
        Access::Write
    }

    fn run(&self, fs: &dyn FileSystem, _: &mut Output<'_>) -> Outcome {
        self.operands
            .each(fs, |path| truncate(fs, self, path).map_err(|error| unmade(fs, path, &error)))
    }
}

fn truncate(fs: &dyn FileSystem, args: &Args, path: &[u8]) -> cairn_vfs::Result<()> {
    let found = match walk::resolve(fs, path, true) {
        Err(Error::NotFound) if args.no_create => return Ok(()),
        Err(Error::NotFound) => {
            let path = walk::behind_links(fs, path)?;
            let (parent, name) = walk::resolve_parent(fs, &path)?;
            create_plain(fs, (parent.ino, name), NewInode::Regular, (0o666, UMASK))?
        }
        found => found?,
    };
    found.kind.check_regular()?;
    let size = match args.size {
        Size::To(size) => size,
        Size::Add(more) => found.size.checked_add(more).ok_or(Error::TooLarge)?,
        Size::Less(less) => found.size.saturating_sub(less),
        Size::AtMost(most) => found.size.min(most),
        Size::AtLeast(least) => found.size.max(least),
        Size::Down(unit) => found.size / unit * unit,
        Size::Up(unit) => found.size.checked_next_multiple_of(unit).ok_or(Error::TooLarge)?,
    };
    fs.setattr(found.ino, &SetAttributes { size: Some(size), ..Default::default() }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_changes() {
        assert_eq!(
            (parse("4K"), parse("+1"), parse("-1M")),
            (Ok(Size::To(4096)), Ok(Size::Add(1)), Ok(Size::Less(1 << 20)))
        );
        assert!(parse("%0").is_err() && parse("/0").is_err());
        assert!(parse("").is_err() && parse("+").is_err() && parse("x").is_err());
    }
}
