//! Base64, as archives and manifests have it in attributes.

/// Decodes text; its end marks and line ends do not count. `None` if it has another letter.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for letter in text.iter().filter(|letter| !matches!(letter, b'=' | b'\n')) {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6 | u32::from(value)) & 0xff_ffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            let [.., byte] = (bits >> count).to_be_bytes();
            bytes.push(byte);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_decoded() {
        assert_eq!(decode(b"aGVsbG8=").unwrap(), b"hello");
        assert!(decode(b"a*").is_none());
    }
}
