//! Lists of options as in mount(8), and the sizes in them.

/// One option of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word<'a> {
    /// As it was given.
    pub text: &'a str,
    /// What stands before the first `=`.
    pub name: &'a str,
    /// What stands behind it.
    pub value: Option<&'a str>,
}

/// The options of a comma-separated list; empty ones are passed over.
pub fn words(list: &str) -> impl Iterator<Item = Word<'_>> {
    list.split(',').filter(|text| !text.is_empty()).map(|text| match text.split_once('=') {
        Some((name, value)) => Word { text, name, value: Some(value) },
        None => Word { text, name: text, value: None },
    })
}

/// Parses a number of bytes with an optional binary suffix (`K`, `M`, `G`, `T`; `1G` and `1GiB` are 2^30).
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.strip_suffix("iB").unwrap_or(text);
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(split);
    let shift = match suffix {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_and_binary() {
        assert_eq!(parse_size("4096"), Some(4096));
        assert_eq!(parse_size("2k"), Some(2048));
        assert_eq!(parse_size("1GiB"), Some(1 << 30));
        assert_eq!(parse_size("17T"), Some(17 << 40));
        for bad in ["", "G", "1.5G", "+5", "1MM", "xM", "99999999999T"] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_list_is_split_at_commas_and_a_word_at_its_first_equals() {
        let found: Vec<_> = words("ro,,a=b=c,d=").map(|word| (word.text, word.name, word.value)).collect();
        assert_eq!(found, [("ro", "ro", None), ("a=b=c", "a", Some("b=c")), ("d=", "d", Some(""))]);
        assert_eq!(words("").count(), 0);
    }
}
