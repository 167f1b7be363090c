//! Command lines of options with one letter, as getopt(3) reads them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::failure::{Failure, Outcome};

/// A command line.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Letters with their values, in order.
    pub(super) options: Vec<(char, OsString)>,
    pub(super) operands: Vec<OsString>,
}

/// Splits a command line. `valued` are the letters with a value, `plain` those without.
///
/// # Errors
/// A letter is not known, or has no value.
pub(super) fn split(words: &[OsString], valued: &str, plain: &str) -> Outcome<Line> {
    let mut line = Line::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let letters = match word.as_bytes() {
            b"--" => {
                line.operands.extend(words.by_ref().cloned());
                break;
            }
            [b'-', letters @ ..] if !letters.is_empty() => letters,
            _ => {
                line.operands.push(word.clone());
                continue;
            }
        };
        let mut rest = letters;
        while let Some((letter, behind)) = rest.split_first() {
            let letter = char::from(*letter);
            rest = behind;
            if plain.contains(letter) {
                line.options.push((letter, OsString::new()));
            } else if valued.contains(letter) {
                let value = match behind {
                    [] => words.next().cloned(),
                    value => Some(OsString::from_vec(value.to_vec())),
                };
                let none = || Failure::usage(format!("-{letter} needs a value"));
                line.options.push((letter, value.ok_or_else(none)?));
                break;
            } else {
                let shown = word.to_string_lossy();
                return Err(Failure::usage(format!("no option `{shown}`: see --help")));
            }
        }
    }
    Ok(line)
}

/// The error for a value that is not possible.
pub(super) fn wrong(option: &str, value: &OsStr, give: &str) -> Failure {
    let value = value.to_string_lossy();
    Failure::usage(format!("{option}: '{value}' is not possible: give {give}"))
}

/// The error for an option that Cairn does not have.
pub(super) fn refused(option: &str) -> Failure {
    Failure::usage(format!("{option}: Cairn does not have this option: leave it out"))
}

/// A value that is parsed from text.
pub(super) fn parsed<T: std::str::FromStr>(option: char, value: &OsStr, give: &str) -> Outcome<T> {
    let parsed = value.to_str().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| wrong(&format!("-{option}"), value, give))
}

/// `UID:GID`.
pub(super) fn owner(option: &str, value: &OsStr) -> Outcome<(u32, u32)> {
    let numbers = value.to_str().and_then(|text| {
        let (uid, gid) = text.split_once(':')?;
        Some((uid.parse().ok()?, gid.parse().ok()?))
    });
    numbers.ok_or_else(|| wrong(option, value, "UID:GID, such as 0:0"))
}
