//! Shell patterns (fnmatch(3)), and their expansion to paths on a volume.
//!
//! `*` is any run of bytes, `?` one character, `[a-z]` and `[!a-z]` one character in or not in a
//! set. A backslash quotes the next character. In a path, a pattern matches names in one directory;
//! it does not match a dot at the beginning of a name. A pattern without a match stands for itself,
//! as in sh.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use cairn_base::Ino;
use cairn_vfs::{FileKind, FileSystem, walk};

use crate::failure::{Failure, Outcome};
use crate::session::shown;
use crate::tree;

/// One step of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    /// This byte.
    Byte(u8),
    /// One character.
    One,
    /// Any number of bytes.
    Any,
    /// One character in one of the ranges, or with `true` in none of them.
    Set(bool, Vec<(char, char)>),
}

/// A parsed pattern for one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<Piece>);

impl Pattern {
    /// Parses it; `[` without `]` stands for itself.
    #[must_use]
    pub fn parse(text: &[u8]) -> Self {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let [first, behind @ ..] = rest {
            rest = behind;
            pieces.push(match first {
                b'*' => Piece::Any,
                b'?' => Piece::One,
                b'[' => match parse_set(behind) {
                    Some((set, behind)) => {
                        rest = behind;
                        set
                    }
                    None => Piece::Byte(b'['),
                },
                b'\\' if !behind.is_empty() => {
                    rest = behind.get(1..).unwrap_or_default();
                    Piece::Byte(behind.first().copied().unwrap_or(b'\\'))
                }
                byte => Piece::Byte(*byte),
            });
        }
        Self(pieces)
    }

    /// The only name that it matches, if there is only one.
    #[must_use]
    pub fn literal(&self) -> Option<Vec<u8>> {
        let byte = |piece: &Piece| if let Piece::Byte(byte) = piece { Some(*byte) } else { None };
        self.0.iter().map(byte).collect()
    }

    /// True if the whole name matches. Takes at most the product of both lengths in steps, because
    /// only the last `*` is tried again.
    #[must_use]
    pub fn matches(&self, name: &[u8]) -> bool {
        let (mut piece, mut at) = (0, 0);
        let mut again: Option<(usize, usize)> = None;
        loop {
            let step = match self.0.get(piece) {
                None if at == name.len() => return true,
                Some(Piece::Any) => {
                    again = Some((piece, at));
                    piece += 1;
                    continue;
                }
                None => None,
                Some(one) => one_step(one, name.get(at..).unwrap_or_default()),
            };
            match (step, again) {
                (Some(len), _) => (piece, at) = (piece + 1, at + len),
                (None, Some((star, from))) if from < name.len() => {
                    again = Some((star, from + 1));
                    (piece, at) = (star + 1, from + 1);
                }
                _ => return false,
            }
        }
    }
}

/// Bytes that one piece takes from the front.
fn one_step(piece: &Piece, rest: &[u8]) -> Option<usize> {
    let first = *rest.first()?;
    // A byte that is not UTF-8 counts as a character that is in no set.
    let letter = rest.utf8_chunks().next().and_then(|chunk| chunk.valid().chars().next());
    let len = letter.map_or(1, char::len_utf8);
    match piece {
        Piece::Byte(byte) => (first == *byte).then_some(1),
        Piece::One => Some(len),
        Piece::Set(not, ranges) => {
            let inside = letter.is_some_and(|letter| {
                ranges.iter().any(|(from, to)| (*from..=*to).contains(&letter))
            });
            (inside != *not).then_some(len)
        }
        Piece::Any => Some(0),
    }
}

/// The set after `[`, and the rest after `]`.
fn parse_set(text: &[u8]) -> Option<(Piece, &[u8])> {
    let not = matches!(text.first(), Some(b'!' | b'^'));
    let body = text.get(usize::from(not)..)?;
    // A bracket in the first place belongs to the set.
    let end = body.iter().skip(1).position(|byte| *byte == b']')? + 1;
    let letters: Vec<char> = std::str::from_utf8(body.get(..end)?).ok()?.chars().collect();
    let mut ranges = Vec::new();
    let mut rest = &letters[..];
    while let [first, behind @ ..] = rest {
        match behind {
            ['-', last, behind @ ..] => {
                ranges.push((*first, *last));
                rest = behind;
            }
            _ => {
                ranges.push((*first, *first));
                rest = behind;
            }
        }
    }
    Some((Piece::Set(not, ranges), body.get(end + 1..)?))
}

/// The path that a word of the command line means. An empty word is no path: it comes from a
/// variable without a value, and as the root it would change the whole volume.
///
/// # Errors
/// The word is empty.
pub fn path(word: &OsStr) -> Outcome<&[u8]> {
    match word.as_bytes() {
        b"" => Err(Failure::usage("a path is empty: give / for the root directory")),
        path => Ok(path),
    }
}

/// Expands words to paths: words without pattern characters as they are, the others to their
/// matches in order of name.
///
/// # Errors
/// A word is empty.
pub fn expand(fs: &dyn FileSystem, paths: &[OsString]) -> Outcome<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    for word in paths {
        expand_one(fs, path(word)?, &mut found)?;
    }
    Ok(found)
}

fn expand_one(fs: &dyn FileSystem, path: &[u8], found: &mut Vec<Vec<u8>>) -> Outcome {
    if !path.iter().any(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\')) {
        found.push(path.to_vec());
        return Ok(());
    }
    let mut candidates = vec![Vec::new()];
    for (index, component) in path.split(|byte| *byte == b'/').enumerate() {
        let pattern = Pattern::parse(component);
        let mut next = Vec::new();
        for before in candidates {
            let before = if index == 0 { before } else { [before.as_slice(), b"/"].concat() };
            match pattern.literal() {
                Some(name) => next.push([before, name].concat()),
                None => {
                    matches_in(fs, &before, &pattern, component.first() == Some(&b'.'), &mut next)?
                }
            }
        }
        candidates = next;
    }
    candidates.retain(|path| walk::resolve(fs, path, false).is_ok());
    if candidates.is_empty() {
        // Nothing matches: the word without its backslashes is the missing name, or a name with
        // such characters.
        candidates.push(if walk::resolve(fs, path, false).is_ok() {
            path.to_vec()
        } else {
            unescaped(path)
        });
    }
    found.append(&mut candidates);
    Ok(())
}

fn matches_in(
    fs: &dyn FileSystem,
    before: &[u8],
    pattern: &Pattern,
    hidden: bool,
    found: &mut Vec<Vec<u8>>,
) -> Outcome {
    let Some(directory) = directory(fs, before) else { return Ok(()) };
    let (entries, damage) = walk::list_past_damage(fs, directory);
    if let Some(error) = damage {
        let failure = Failure::volume(shown(before), &error);
        tree::complain(&format!("warning: {failure}: other names may match, too"));
    }
    let names = entries.into_iter().map(|entry| entry.name);
    let mut names: Vec<_> =
        names.filter(|name| (hidden || !name.starts_with(b".")) && pattern.matches(name)).collect();
    names.sort();
    found.extend(names.into_iter().map(|name| [before, &name].concat()));
    Ok(())
}

/// None for a file that is not a directory, which has no matches.
fn directory(fs: &dyn FileSystem, path: &[u8]) -> Option<Ino> {
    let found = walk::resolve(fs, path, true).ok()?;
    (found.kind == FileKind::Directory).then_some(found.ino)
}

fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut bytes = path.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => plain.push(*bytes.next().unwrap_or(byte)),
            byte => plain.push(*byte),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_fnmatch_does() {
        for (pattern, name, expected) in [
            ("", "", true),
            ("*", "", true),
            ("*", "anything", true),
            ("*.conf", "a.conf", true),
            ("*.conf", "a.conf.bak", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b", false),
            ("?", "ä", true),
            ("??", "ä", false),
            ("[a-cx]1", "b1", true),
            ("[a-cx]1", "d1", false),
            ("[!a-c]", "d", true),
            ("[^a-c]", "a", false),
            ("[]]", "]", true),
            ("[a", "[a", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("a\\", "a\\", true),
        ] {
            assert_eq!(
                Pattern::parse(pattern.as_bytes()).matches(name.as_bytes()),
                expected,
                "{pattern} {name}"
            );
        }
        assert!(
            Pattern::parse(b"?").matches(b"\xff") && !Pattern::parse(b"[a-z]").matches(b"\xff")
        );
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = Pattern::parse("*a".repeat(200).as_bytes());
        assert!(!pattern.matches(&[b'a'; 199]) && pattern.matches(&[b'a'; 255]));
    }
}
