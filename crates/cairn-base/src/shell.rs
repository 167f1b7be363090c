//! Words of command lines: what a message tells a user to type must be what a shell reads back.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::names::{is_hidden, octal};

/// A word as a shell reads it back, byte for byte: as it is, or quoted. Control characters, and
/// bytes that are not UTF-8, are written as `$'\033'`, which all but the oldest shells understand.
#[must_use]
pub fn quoted(word: impl AsRef<OsStr>) -> String {
    let bytes = word.as_ref().as_bytes();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(byte);
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.is_empty() && bytes.iter().all(is_plain) => text.to_owned(),
        Ok(text) if !text.chars().any(is_hidden) => {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
        _ => escaped(bytes),
    }
}

fn escaped(bytes: &[u8]) -> String {
    let mut text = String::from("$'");
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\\' | '\'' => text.extend(['\\', letter]),
                _ if is_hidden(letter) => {
                    octal(&mut text, letter.encode_utf8(&mut [0; 4]).as_bytes())
                }
                _ => text.push(letter),
            }
        }
        octal(&mut text, chunk.invalid());
    }
    text.push('\'');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    use std::process::Command;

    #[test]
    fn usual_words_stay_as_they_are() {
        for word in ["disk.img", "/a/b-c_d", "a@b:c,d+e=f%"] {
            assert_eq!(quoted(word), word);
        }
        assert_eq!(quoted("disk.img#2"), "'disk.img#2'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn a_shell_reads_back_each_word() {
        let words: [&[u8]; 10] = [
            b"a b",
            b"it's",
            b"\"",
            b"$HOME",
            b"`id`",
            b"a\\b",
            b"\n\t'\\x",
            b"\xff\xfe'",
            b"*?[",
            "é日".as_bytes(),
        ];
        for bytes in words {
            let word = OsString::from_vec(bytes.to_vec());
            let script = format!("printf %s {}", quoted(&word));
            let said = Command::new("bash").arg("-c").arg(&script).output().unwrap();
            assert_eq!(said.stdout, bytes, "{script}");
        }
    }
}
