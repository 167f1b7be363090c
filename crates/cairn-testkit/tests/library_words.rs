//! Messages of the libraries name no commands and no options of the program `cairn`: programs in
//! Rust, C and Python show these messages, and have no such commands. The program puts its own in
//! their place (`crates/cairn-cli/src/wording.rs`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use syn::LitStr;
use syn::buffer::{Cursor, TokenBuffer};

/// The crates whose messages reach other programs.
const LIBRARIES: [&str; 17] = [
    "cairn",
    "cairn-base",
    "cairn-block",
    "cairn-build",
    "cairn-c",
    "cairn-cache",
    "cairn-check",
    "cairn-ext4",
    "cairn-f2fs",
    "cairn-fuse",
    "cairn-images",
    "cairn-jbd2",
    "cairn-luks",
    "cairn-nbd",
    "cairn-objects",
    "cairn-python",
    "cairn-vfs",
];
/// What others than Cairn have made, whose options an advice may name behind them.
const OTHERS: [&str; 18] = [
    "bsdtar",
    "container",
    "cpio",
    "debugfs",
    "e2fsck",
    "findmnt",
    "fusermount3",
    "losetup",
    "lz4",
    "mdadm",
    "mke2fs",
    "nbdkit",
    "nsenter",
    "qemu-img",
    "tune2fs",
    "ulimit",
    "umount",
    "zstd",
];
/// So many words behind such a name belong to it.
const REACH: usize = 8;
/// A fact, which a file records.
const FACT: &str = "cairn export";

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.contains("tests") {
            continue;
        }
        if path.is_dir() {
            sources(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

/// The string literals, without those of documentation and of tests.
fn literals(text: &str) -> Vec<String> {
    let tokens = TokenBuffer::new2(text.parse().unwrap());
    let mut found = Vec::new();
    collect(tokens.begin(), &mut found);
    found
}

fn collect(mut at: Cursor<'_>, found: &mut Vec<String>) {
    while !at.eof() {
        if let Some((inside, next)) = attribute(at) {
            let name = inside.ident().map(|(name, _)| name.to_string());
            match name.as_deref() {
                Some("doc") => {}
                Some("cfg") if is_for_tests(inside) => {
                    at = behind_item(next);
                    continue;
                }
                _ => collect(inside, found),
            }
            at = next;
        } else if let Some((literal, next)) = at.literal() {
            found.extend(
                syn::parse_str::<LitStr>(&literal.to_string()).ok().map(|text| text.value()),
            );
            at = next;
        } else if let Some((inside, _, _, next)) = at.any_group() {
            collect(inside, found);
            at = next;
        } else {
            at = after(at);
        }
    }
}

fn after(at: Cursor<'_>) -> Cursor<'_> {
    at.token_tree().unwrap().1
}

/// What is between the brackets of an attribute, and what follows it.
fn attribute(at: Cursor<'_>) -> Option<(Cursor<'_>, Cursor<'_>)> {
    let (sign, mut next) = at.punct()?;
    if sign.as_char() != '#' {
        return None;
    }
    if let Some((inner, behind)) = next.punct() {
        next = if inner.as_char() == '!' { behind } else { return None };
    }
    let (inside, delimiter, _, next) = next.any_group()?;
    (delimiter_is_bracket(delimiter)).then_some((inside, next))
}

fn delimiter_is_bracket(delimiter: impl std::fmt::Debug) -> bool {
    format!("{delimiter:?}") == "Bracket"
}

/// `cfg(test)`, and what needs it among other things; not `cfg(not(test))`.
fn is_for_tests(attribute: Cursor<'_>) -> bool {
    let text = attribute.token_stream().to_string();
    let mut words = text.split(|letter: char| !letter.is_alphanumeric());
    words.any(|word| word == "test") && !text.contains("not")
}

/// Behind an item: its first braces, or a semicolon.
fn behind_item(mut at: Cursor<'_>) -> Cursor<'_> {
    while !at.eof() {
        let ends = at.punct().is_some_and(|(sign, _)| sign.as_char() == ';');
        let braces =
            at.any_group().is_some_and(|(_, delimiter, ..)| format!("{delimiter:?}") == "Brace");
        at = after(at);
        if ends || braces {
            break;
        }
    }
    at
}

fn all_literals() -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    for library in LIBRARIES {
        sources(&crates().join(library).join("src"), &mut files);
    }
    assert!(files.len() > 300, "{}", files.len());
    let of_file = |file: PathBuf| {
        let text = std::fs::read_to_string(&file).unwrap();
        literals(&text).into_iter().map(move |literal| (file.clone(), literal))
    };
    files.into_iter().flat_map(of_file).collect()
}

/// The commands of the program, by the names of their modules.
fn commands() -> BTreeSet<String> {
    let entries = std::fs::read_dir(crates().join("cairn-cli/src/commands")).unwrap();
    let names = entries.map(|entry| entry.unwrap().path());
    names.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

/// The commands and options of the program that a message names.
fn named(message: &str, commands: &BTreeSet<String>) -> Vec<String> {
    let message = message.replace(FACT, "");
    let bare =
        |word: &str| word.trim_matches(|letter: char| "`'\"(),.:;".contains(letter)).to_owned();
    let words: Vec<String> = message.split_whitespace().map(bare).collect();
    // A word by itself is an argument to a program that a library runs.
    if words.len() < 2 {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let next = words.get(at + 1).map_or("", String::as_str);
        if word == "cairn" && commands.contains(next) {
            found.push(format!("cairn {next}"));
        }
        let is_others = words[at.saturating_sub(REACH)..at]
            .iter()
            .any(|before| OTHERS.iter().any(|other| before.starts_with(other)));
        if is_option(word) && !is_others {
            found.push(word.clone());
        }
    }
    found
}

/// Two dashes and a letter, or one dash and one letter.
fn is_option(word: &str) -> bool {
    let letter = |text: &str| text.starts_with(|letter: char| letter.is_ascii_alphabetic());
    word.strip_prefix("--").is_some_and(letter)
        || word.strip_prefix('-').is_some_and(|rest| rest.len() == 1 && letter(rest))
}

#[test]
fn messages_of_libraries_name_no_words_of_the_program() {
    let commands = commands();
    assert!(commands.contains("check") && commands.len() > 30, "{commands:?}");
    let wrong: Vec<String> = all_literals()
        .iter()
        .filter_map(|(file, literal)| {
            let found = named(literal, &commands);
            (!found.is_empty()).then(|| format!("{}: {found:?} in {literal:?}", file.display()))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    for (message, found) in [
        ("give --size 1G, or (`--force`)", &["--size", "--force"][..]),
        ("run `cairn check` on it", &["cairn check"]),
        ("make it larger (-J size)", &["-J"]),
        ("use qemu-img resize --shrink", &[]),
        ("Cairn does not check it", &[]),
    ] {
        assert_eq!(named(message, &commands), found, "{message}");
    }
}

/// A program that uses a library has opened a volume, and not mounted it.
#[test]
fn messages_of_libraries_do_not_ask_for_mounts() {
    let asks = |text: &str| text.starts_with("mounted with") || text.contains("mount it again");
    let wrong: Vec<_> = all_literals()
        .into_iter()
        .filter(|(file, literal)| !file.starts_with(crates().join("cairn-fuse")) && asks(literal))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(asks("it has stopped: unmount it, and mount it again"));
}

#[test]
fn literals_are_those_of_messages() {
    let text = r##"
        //! A "quoted" word.
        /// `cairn check`
        #[error("one {0}")]
        fn a() { b!("two \
            words", r#"three"#) }
        #[cfg(test)]
        mod tests { const X: &str = "four"; }
        #[cfg(not(test))]
        const Y: &str = "five";
    "##;
    assert_eq!(literals(text), ["one {0}", "two words", "three", "five"]);
}

/// A row that no library says is of no use.
#[test]
fn what_the_program_replaces_is_said_by_a_library() {
    let text = std::fs::read_to_string(crates().join("cairn-cli/src/wording.rs")).unwrap();
    let (_, table) = text.split_once("const COMMANDS").unwrap();
    let (table, _) = table.split_once("];").unwrap();
    let tokens =
        TokenBuffer::new2(table.split_once('=').unwrap().1.replace("&[", "").parse().unwrap());
    let (mut at, mut said) = (tokens.begin(), Vec::new());
    while !at.eof() {
        if let Some((row, ..)) = at.any_group() {
            let (literal, _) = row.literal().unwrap();
            said.push(syn::parse_str::<LitStr>(&literal.to_string()).unwrap().value());
        }
        at = after(at);
    }
    assert!(said.len() > 30, "{said:?}");
    let all = all_literals();
    let unsaid = |words: &&String| !all.iter().any(|(_, literal)| literal.contains(words.as_str()));
    let unsaid: Vec<_> = said.iter().filter(unsaid).collect();
    assert!(unsaid.is_empty(), "no library says {unsaid:#?}");
}
