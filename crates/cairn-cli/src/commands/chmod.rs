//! `cairn chmod`: octal and symbolic modes.

use std::ffi::OsString;

use cairn_vfs::{FileKind, FileSystem, SetAttributes};

use super::on_volume::OnVolume;
use crate::failure::Outcome;
use crate::output::Output;
use crate::pattern;
use crate::session::{Access, ImageArg};
use crate::tree::{self, Reach};

/// Arguments of `chmod`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn chmod -R disk.img u=rwX,go=rX /srv/www")]
pub struct Args {
    /// Go into directories (symbolic links are left alone).
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// The image.
    #[command(flatten)]
    pub image: ImageArg,
    /// Octal, or clauses such as u+x,g-w,o=rX.
    #[arg(allow_hyphen_values = true, value_parser = Change::parse)]
    pub mode: Change,
    /// What to change.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

impl OnVolume for Args {
    fn image(&self) -> &ImageArg {
        &self.image
    }

    fn access(&self) -> Access {
        Access::Write
    }

    fn run(&self, fs: &dyn FileSystem, _: &mut Output<'_>) -> Outcome {
        apply(fs, &self.mode, &self.paths, self.recursive)
    }
}

/// Applies `change` to the paths.
///
/// # Errors
/// A path does not exist, or the volume refuses.
pub fn apply(fs: &dyn FileSystem, change: &Change, paths: &[OsString], recursive: bool) -> Outcome {
    let reach = Reach { recursive, follow: true };
    tree::change(fs, pattern::expand(fs, paths)?, reach, &mut |attributes| {
        if recursive && attributes.kind == FileKind::Symlink {
            return Ok(());
        }
        let permissions =
            Some(change.apply(attributes.permissions, attributes.kind == FileKind::Directory));
        fs.setattr(attributes.ino, &SetAttributes { permissions, ..Default::default() }).map(drop)
    })
}

/// Parses an octal mode up to 7777.
///
/// # Errors
/// It is none.
pub fn parse_octal(text: &str) -> Result<u32, String> {
    let mode =
        u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777 && !text.starts_with('+'));
    mode.ok_or_else(|| "give an octal number up to 7777".into())
}

/// A parsed mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Exactly this.
    Octal(u32),
    /// Clauses, applied in order.
    Symbolic(Vec<Clause>),
}

/// One operation on some classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clause {
    /// Which bits may change: of user, group, others.
    classes: u32,
    operation: char,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    /// `rwxXst` as bits of all classes; `X` apart.
    Bits { bits: u32, conditional_execute: bool },
    /// Copied from the class at this shift (`u`, `g` or `o`).
    Copy(u32),
}

impl Change {
    /// Parses an octal or symbolic mode.
    ///
    /// # Errors
    /// Says which part is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            return parse_octal(text).map(Self::Octal);
        }
        let mut clauses = Vec::new();
        for part in text.split(',') {
            parse_clauses(part, &mut clauses)?;
        }
        Ok(Self::Symbolic(clauses))
    }

    /// The new permissions for the old ones.
    #[must_use]
    pub fn apply(&self, old: u32, is_directory: bool) -> u32 {
        match self {
            // As chmod(1): an octal mode of up to four digits leaves a directory's set-id bits
            // alone only if asked to.
            Self::Octal(mode) => *mode,
            Self::Symbolic(clauses) => {
                clauses.iter().fold(old, |mode, clause| clause.apply(mode, is_directory))
            }
        }
    }
}

fn parse_clauses(part: &str, clauses: &mut Vec<Clause>) -> Result<(), String> {
    let split = part
        .find(['+', '-', '='])
        .ok_or("expected u, g, o or a, then +, - or =, then r, w, x, X, s or t")?;
    let (who, mut rest) = part.split_at(split);
    let mut classes = 0;
    for class in who.chars() {
        classes |= match class {
            'u' => 0o4700,
            'g' => 0o2070,
            'o' => 0o1007,
            'a' => 0o7777,
            other => return Err(format!("'{other}' is not a class of users: give u, g, o or a")),
        };
    }
    if who.is_empty() {
        classes = 0o7777;
    }
    while let Some(operation) = rest.chars().next() {
        rest = rest.get(1..).unwrap_or_default();
        let end = rest.find(['+', '-', '=']).unwrap_or(rest.len());
        let (letters, behind) = rest.split_at(end);
        clauses.push(Clause { classes, operation, what: parse_what(letters)? });
        rest = behind;
    }
    Ok(())
}

fn parse_what(letters: &str) -> Result<What, String> {
    match letters {
        "u" => return Ok(What::Copy(6)),
        "g" => return Ok(What::Copy(3)),
        "o" => return Ok(What::Copy(0)),
        _ => {}
    }
    let mut bits = 0;
    let mut conditional_execute = false;
    for letter in letters.chars() {
        bits |= match letter {
            'r' => 0o444,
            'w' => 0o222,
            'x' => 0o111,
            's' => 0o6000,
            't' => 0o1000,
            'X' => {
                conditional_execute = true;
                0
            }
            other => {
                return Err(format!("'{other}' is not a permission: give r, w, x, X, s or t"));
            }
        };
    }
    Ok(What::Bits { bits, conditional_execute })
}

impl Clause {
    fn apply(&self, old: u32, is_directory: bool) -> u32 {
        let bits = match &self.what {
            What::Copy(shift) => ((old >> shift) & 7) * 0o111,
            What::Bits { bits, conditional_execute } => {
                let execute = *conditional_execute && (is_directory || old & 0o111 != 0);
                bits | if execute { 0o111 } else { 0 }
            }
        } & self.classes;
        match self.operation {
            '+' => old | bits,
            '-' => old & !bits,
            // `=` leaves the sticky and set-id bits of directories alone unless they are named.
            _ => {
                let kept = if is_directory { 0o7000 } else { 0 };
                (old & !(self.classes & !kept)) | bits
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(mode: &str, old: u32, is_directory: bool) -> u32 {
        Change::parse(mode).expect(mode).apply(old, is_directory)
    }

    #[test]
    fn octal() {
        assert_eq!(apply("644", 0o7777, false), 0o644);
        assert_eq!(apply("4755", 0, false), 0o4755);
        for bad in ["8", "17777", "64x"] {
            assert!(Change::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn symbolic() {
        assert_eq!(apply("u+x", 0o644, false), 0o744);
        assert_eq!(apply("+x", 0o644, false), 0o755);
        assert_eq!(apply("go-rwx", 0o755, false), 0o700);
        assert_eq!(apply("u=rw,go=r", 0o777, false), 0o644);
        assert_eq!(apply("a=rX", 0o600, false), 0o444);
        assert_eq!(apply("a=rX", 0o700, false), 0o555);
        assert_eq!(apply("a=rX", 0o000, true), 0o555);
        assert_eq!(apply("g=u", 0o640, false), 0o660);
        assert_eq!(apply("u+s,g+s,o+t", 0o755, false), 0o7755);
        assert_eq!(apply("u-x+w", 0o500, false), 0o600);
        assert_eq!(apply("a=", 0o7777, false), 0);
        assert_eq!(apply("g=rx", 0o2770, true), 0o2750);
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in ["", "u", "z+x", "u+q", "u+x,"] {
            assert!(Change::parse(bad).is_err(), "{bad}");
        }
    }
}
