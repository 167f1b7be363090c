//! The known word that is nearest to an unknown one, for error messages.

/// The candidate that is nearest to `word`, if it is near enough to be meant: letters left out,
/// added, replaced, or two neighbours exchanged. Case does not count.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = letters(word);
    let near = candidates.into_iter().filter_map(|candidate| {
        let letters = letters(candidate);
        // A short word is near to nearly everything: both sides count.
        let most = word.len().min(letters.len()).div_ceil(3).min(3);
        let distance = distance(&word, &letters);
        (distance <= most).then_some((distance, candidate))
    });
    near.min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

/// `: did you mean X?`, or nothing.
pub fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, candidates).map_or(String::new(), |found| format!(": did you mean `{found}`?"))
}

/// Longer words are cut: no word that is known is so long.
fn letters(word: &str) -> Vec<char> {
    word.chars().take(64).flat_map(char::to_lowercase).collect()
}

/// Damerau's distance, for neighbours that are exchanged once (optimal string alignment).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, other) in b.iter().enumerate() {
            let mut least =
                (last[j] + usize::from(letter != other)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *letter == b[j - 1] && a[i - 1] == *other {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_is_found_and_what_is_not_is_nothing() {
        let words = ["has_journal", "metadata_csum", "extent", "64bit", "commit", "noatime", "ro"];
        for (typed, meant) in [
            ("has_jounral", Some("has_journal")),
            ("metadata_cksum", Some("metadata_csum")),
            ("extents", Some("extent")),
            ("64Bit", Some("64bit")),
            ("commti", Some("commit")),
            ("noatmie", Some("noatime")),
            ("or", Some("ro")),
            ("casefold", None),
            ("frob", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(nearest(typed, words), meant, "{typed}");
        }
        assert_eq!(did_you_mean("commti", words), ": did you mean `commit`?");
        assert_eq!(did_you_mean("frobnicate", words), "");
    }

    #[test]
    fn words_of_any_length_take_little() {
        assert_eq!(nearest(&"x".repeat(1 << 20), ["commit"]), None);
    }
}
