//! Percent-encoding (RFC 3986, section 2).

use std::fmt::Write;

/// The bytes that `text` stands for. `None` if a `%` is not followed by two hexadecimal digits.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => bytes.push(digit(rest.next()?)? << 4 | digit(rest.next()?)?),
            byte => bytes.push(byte),
        }
    }
    Some(bytes)
}

fn digit(letter: u8) -> Option<u8> {
    let digit = char::from(letter).to_digit(16)?;
    u8::try_from(digit).ok()
}

/// Text that [`decode`] reads back. Letters, digits, `-._~` and `/` stay as they are.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                text.push(char::from(*byte));
            }
            byte => write!(text, "%{byte:02X}").expect("a String takes what is written"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)).unwrap(), all);
        assert_eq!(encode(b"a b/\xc3"), "a%20b/%C3");
        assert_eq!(decode("%2f+%2F").unwrap(), b"/+/");
    }

    #[test]
    fn a_broken_sequence_is_refused() {
        for text in ["%", "%4", "%4g", "%+1", "a%"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
