//! Names in texts for people. They come from images and command lines, and may hold any bytes.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Names that can be shown.
pub trait Escaped {
    /// The name as `ls -b` prints it: control characters, backslashes and bytes that are not UTF-8
    /// become `\n`, `\\` or three octal digits (`\033`). The result is one line, and no two names
    /// have the same one.
    #[must_use]
    fn escaped(&self) -> String;
}

impl Escaped for [u8] {
    fn escaped(&self) -> String {
        let mut text = String::with_capacity(self.len());
        for chunk in self.utf8_chunks() {
            for letter in chunk.valid().chars() {
                match letter {
                    '\\' => text.push_str("\\\\"),
                    '\n' => text.push_str("\\n"),
                    '\t' => text.push_str("\\t"),
                    '\r' => text.push_str("\\r"),
                    _ if is_hidden(letter) => {
                        octal(&mut text, letter.encode_utf8(&mut [0; 4]).as_bytes());
                    }
                    _ => text.push(letter),
                }
            }
            octal(&mut text, chunk.invalid());
        }
        text
    }
}

impl Escaped for OsStr {
    fn escaped(&self) -> String {
        self.as_bytes().escaped()
    }
}

impl Escaped for Path {
    fn escaped(&self) -> String {
        self.as_os_str().escaped()
    }
}

impl Escaped for str {
    fn escaped(&self) -> String {
        self.as_bytes().escaped()
    }
}

pub(crate) fn octal(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(text, "\\{byte:03o}");
    }
}

/// Control characters, and those that change the direction or the lines of a text.
#[must_use]
pub fn is_hidden(letter: char) -> bool {
    let reorders = matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}');
    letter.is_control() || reorders
}
