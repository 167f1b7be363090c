//! Lists of options as in mount(8), and the sizes in them.

use crate::nearest::nearest;

/// One option of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word<'a> {
    /// The whole option.
    pub text: &'a str,
    /// The part before the first `=`.
    pub name: &'a str,
    /// The part after it.
    pub value: Option<&'a str>,
}

/// The options of a comma-separated list; empty ones are passed over.
pub fn words(list: &str) -> impl Iterator<Item = Word<'_>> {
    list.split(',').filter(|text| !text.is_empty()).map(|text| match text.split_once('=') {
        Some((name, value)) => Word { text, name, value: Some(value) },
        None => Word { text, name: text, value: None },
    })
}

/// How a setting changes the options `T`. An invalid value is an error of type `E`.
pub enum Action<T, E> {
    /// An option without a value.
    Flag(fn(&mut T)),
    /// An option with a value. The string stands for the value in messages.
    Value(&'static str, fn(&mut T, Word<'_>, &str) -> Result<(), E>),
}

/// A setting of Cairn's: its names, and its action. Messages show the first name.
pub type Setting<T, E> = (&'static [&'static str], Action<T, E>);

/// Applies a word, if it is a setting of this table.
pub fn set<T, E>(
    settings: &[Setting<T, E>],
    options: &mut T,
    word: Word<'_>,
) -> Option<Result<(), E>> {
    settings.iter().filter(|(names, _)| names.contains(&word.name)).find_map(|(_, action)| {
        match (action, word.value) {
            (Action::Flag(set), None) => {
                set(options);
                Some(Ok(()))
            }
            (Action::Value(_, set), Some(value)) => Some(set(options, word, value)),
            _ => None,
        }
    })
}

/// All settings of a table under all their names: `ro`, `commit=SECONDS`.
pub fn written<T, E>(settings: &[Setting<T, E>]) -> impl Iterator<Item = String> {
    settings
        .iter()
        .flat_map(|(names, action)| names.iter().map(move |name| written_as(name, action)))
}

fn written_as<T, E>(name: &str, action: &Action<T, E>) -> String {
    match action {
        Action::Flag(_) => name.to_owned(),
        Action::Value(value, _) => format!("{name}={value}"),
    }
}

/// How Cairn treats an option of Linux that it has no setting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Accepted: Cairn always works that way.
    Always,
    /// Accepted without an effect. A message gives the reason.
    Ignored(&'static str),
    /// Refused, because ignoring it would break its promise. The reason says what to do.
    Refused(&'static str),
}

/// Options of Linux: names, `name=value` for one value, or `name=` for any.
pub type Vocabulary = [(&'static [&'static str], Meaning)];

/// Unknown options are ignored, as with `-s` of mount(8).
pub const SLOPPY: &str = "sloppy";

/// The meaning of a word in the vocabulary.
#[must_use]
pub fn meaning(vocabulary: &Vocabulary, word: Word<'_>) -> Option<Meaning> {
    let is = |pattern: &str| {
        pattern == word.text
            || (word.value.is_some() && pattern.strip_suffix('=') == Some(word.name))
    };
    vocabulary
        .iter()
        .find(|(patterns, _)| patterns.iter().any(|pattern| is(pattern)))
        .map(|(_, meaning)| *meaning)
}

/// Handles a word that is no setting of Cairn's: `Some(Ok)` if it is accepted, `None` if it is
/// unknown.
#[must_use]
pub(crate) fn tolerate(vocabulary: &Vocabulary, word: Word<'_>) -> Option<Result<(), String>> {
    Some(match meaning(vocabulary, word)? {
        Meaning::Always | Meaning::Ignored(_) => Ok(()),
        Meaning::Refused(why) => Err(format!("`{}`: {why}", word.text)),
    })
}

/// A message for each word of a list that has no effect. `is_known` is true for words that are
/// settings.
pub fn notes(
    vocabulary: &Vocabulary,
    list: &str,
    is_known: impl Fn(Word<'_>) -> bool,
) -> Vec<String> {
    let note = |word: Word<'_>| match meaning(vocabulary, word) {
        Some(Meaning::Ignored(why)) => Some(format!("option `{}` has no effect: {why}", word.text)),
        Some(_) => None,
        None if is_known(word) => None,
        None => Some(format!("option `{}` has no effect: it is unknown", word.text)),
    };
    words(list).filter(|word| word.text != SLOPPY).filter_map(note).collect()
}

/// Options of the FUSE mount. They stand in the same list, whatever the format is.
pub const OF_THE_MOUNT: [&str; 26] = [
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "exec",
    "noexec",
    "sync",
    "async",
    "dirsync",
    "allow_other",
    "idmap",
    "noidmap",
    "no_open",
    "nono_open",
    "noxattr",
    "transport",
    "xattr",
    "private",
    "one_user",
    "noprivate",
    "default_permissions",
    "build",
    "threads",
    "spin",
    "writeback_cache",
    "nowriteback_cache",
];

/// The error for an unknown word: the setting that may have been meant, or where all are listed.
#[must_use]
pub fn unknown<T, E>(
    word: Word<'_>,
    format: &str,
    settings: &[Setting<T, E>],
    vocabulary: &Vocabulary,
) -> String {
    let text = word.text;
    let own = settings.iter().flat_map(|(names, _)| names.iter().copied());
    let linux = vocabulary.iter().flat_map(|(names, _)| names.iter().copied());
    let linux = linux.map(|name| name.split('=').next().unwrap_or(name));
    let Some(name) = nearest(word.name, own.chain(linux).chain(OF_THE_MOUNT)) else {
        return format!("unknown option `{text}`: docs/options.md has all options of {format}");
    };
    let written = settings.iter().find(|(names, _)| names.contains(&name));
    let written = written.map_or_else(|| name.to_owned(), |(_, action)| written_as(name, action));
    match name == word.name {
        // It is known, but with a value, or without one.
        true => format!("option `{text}` is not written like that: give `{written}`"),
        false => format!("unknown option `{text}`: did you mean `{written}`?"),
    }
}

/// Parses a number of bytes with an optional binary suffix (`K`, `M`, `G`, `T`; `1G` and `1GiB` are
/// 2^30).
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

/// A number of bytes as [`parse_size`] reads it, with the largest suffix that loses nothing.
#[must_use]
pub fn written_size(bytes: u64) -> String {
    let fits = |(shift, _): &(u32, &str)| bytes != 0 && bytes.trailing_zeros() >= *shift;
    let (shift, suffix) =
        [(40, "T"), (30, "G"), (20, "M"), (10, "K")].into_iter().find(fits).unwrap_or((0, ""));
    format!("{}{suffix}", bytes >> shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_written_as_it_is_read() {
        for (bytes, text) in
            [(0, "0"), (1, "1"), (65536, "64K"), (52 << 20, "52M"), (3 << 40, "3T"), (1536, "1536")]
        {
            assert_eq!((written_size(bytes).as_str(), parse_size(text)), (text, Some(bytes)));
        }
    }

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
    fn settings_are_found_by_name_and_by_whether_they_have_a_value() {
        const SETTINGS: &[Setting<u32, String>] = &[
            (&["on", "yes"], Action::Flag(|number| *number = 1)),
            (
                &["on"],
                Action::Value("NUMBER", |number, word, value| {
                    *number = value.parse().map_err(|_| word.text.to_owned())?;
                    Ok(())
                }),
            ),
        ];
        let given = |text| {
            let mut number = 0;
            set(SETTINGS, &mut number, words(text).next().unwrap())
                .map(|taken| taken.map(|()| number))
        };
        assert_eq!(
            (given("on"), given("yes"), given("on=7")),
            (Some(Ok(1)), Some(Ok(1)), Some(Ok(7)))
        );
        assert_eq!(
            (given("on=x"), given("yes=7"), given("off")),
            (Some(Err("on=x".into())), None, None)
        );
        assert_eq!(written(SETTINGS).collect::<Vec<_>>(), ["on", "yes", "on=NUMBER"]);
    }

    #[test]
    fn words_of_linux_are_taken_ignored_with_a_line_or_refused() {
        const WORDS: &Vocabulary = &[
            (&["barrier", "data=ordered"], Meaning::Always),
            (&["stripe=", "lazy"], Meaning::Ignored("why")),
            (&["quota"], Meaning::Refused("leave it out")),
        ];
        let word = |text| words(text).next().unwrap();
        assert_eq!(tolerate(WORDS, word("data=ordered")), Some(Ok(())));
        assert_eq!(tolerate(WORDS, word("stripe=16")), Some(Ok(())));
        assert_eq!(tolerate(WORDS, word("quota")), Some(Err("`quota`: leave it out".to_owned())));
        for unknown in ["data=journal", "stripe", "barrier=1", "quota=1"] {
            assert_eq!(tolerate(WORDS, word(unknown)), None, "{unknown}");
        }
        let told = notes(WORDS, "sloppy,barrier,stripe=2,own,frob", |word| word.text == "own");
        assert_eq!(
            told,
            ["option `stripe=2` has no effect: why", "option `frob` has no effect: it is unknown"]
        );
    }

    #[test]
    fn an_unknown_word_is_answered_with_the_nearest() {
        const SETTINGS: &[Setting<u32, String>] = &[
            (&["commit"], Action::Value("SECONDS", |_, _, _| Ok(()))),
            (&["noatime"], Action::Flag(|_| ())),
        ];
        const WORDS: &Vocabulary = &[(&["data=ordered"], Meaning::Always)];
        for (text, said) in [
            ("commti=5", "unknown option `commti=5`: did you mean `commit=SECONDS`?"),
            ("commit", "option `commit` is not written like that: give `commit=SECONDS`"),
            ("noatime=1", "option `noatime=1` is not written like that: give `noatime`"),
            ("dta=x", "unknown option `dta=x`: did you mean `data`?"),
            ("nosiud", "unknown option `nosiud`: did you mean `nosuid`?"),
            ("no_opne", "unknown option `no_opne`: did you mean `no_open`?"),
        ] {
            assert_eq!(unknown(words(text).next().unwrap(), "ext4", SETTINGS, WORDS), said);
        }
        let all = unknown(words("frobnicate").next().unwrap(), "ext4", SETTINGS, WORDS);
        let listed = "docs/options.md has all options of ext4";
        assert_eq!(all, format!("unknown option `frobnicate`: {listed}"));
    }

    #[test]
    fn a_list_is_split_at_commas_and_a_word_at_its_first_equals() {
        let found: Vec<_> =
            words("ro,,a=b=c,d=").map(|word| (word.text, word.name, word.value)).collect();
        assert_eq!(found, [("ro", "ro", None), ("a=b=c", "a", Some("b=c")), ("d=", "d", Some(""))]);
        assert_eq!(words("").count(), 0);
    }
}
