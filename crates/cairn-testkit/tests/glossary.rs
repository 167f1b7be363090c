//! docs/glossary.md names files that exist, and items that these files contain.

use std::fs;
use std::path::{Path, PathBuf};

/// A name in the third column, with the section's folder and the file named last in its row.
struct Name<'a> {
    line: usize,
    folder: &'a str,
    file: Option<&'a str>,
    name: &'a str,
}

/// The names in backticks of a part of a line.
fn names(part: &str) -> impl Iterator<Item = &str> {
    part.split('`').skip(1).step_by(2)
}

fn is_path(name: &str) -> bool {
    name.ends_with(".rs") || name.ends_with('/')
}

/// Each name of the column "where in the code".
fn named(glossary: &str) -> Vec<Name<'_>> {
    let (mut folder, mut found) = ("", Vec::new());
    for (line, text) in glossary.lines().enumerate() {
        if text.starts_with("Paths are in ") {
            folder = names(text).next().expect("a folder in backticks");
        }
        if !text.starts_with('|') {
            continue;
        }
        let column = text.split('|').nth(3).unwrap_or_default();
        let mut file = None;
        for name in names(column) {
            if is_path(name) {
                file = Some(name);
            }
            found.push(Name { line: line + 1, folder, file, name });
        }
    }
    found
}

/// The source of a file, or of all files directly in a folder.
fn source(path: &Path) -> Option<String> {
    if path.is_file() {
        return fs::read_to_string(path).ok();
    }
    let entries = fs::read_dir(path).ok()?;
    Some(entries.filter_map(|entry| fs::read_to_string(entry.unwrap().path()).ok()).collect())
}

fn contains_word(text: &str, word: &str) -> bool {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').any(|part| part == word)
}

/// What is wrong with one name, if anything.
fn fault(root: &Path, name: &Name<'_>) -> Option<String> {
    let Name { line, folder, file, name } = *name;
    // Items of other crates are named by their path and stand without a file.
    let Some(file) = file else {
        let message = format!("line {line}: `{name}` stands without its file");
        return (!name.starts_with("cairn_")).then_some(message);
    };
    let Some(text) = source(&root.join(folder).join(file)) else {
        return Some(format!("line {line}: there is no {folder}/{file}"));
    };
    let missing = |word: &&str| !is_path(name) && !contains_word(&text, word);
    let missing = name.split("::").find(missing)?;
    let known = name.starts_with("cairn_");
    (!known).then(|| format!("line {line}: {folder}/{file} has no `{missing}`"))
}

#[test]
fn the_glossary_names_what_the_code_has() {
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let glossary = fs::read_to_string(root.join("docs/glossary.md")).unwrap();
    let named = named(&glossary);
    assert!(named.len() > 300, "only {} names were found", named.len());
    let faults: Vec<String> = named.iter().filter_map(|name| fault(&root, name)).collect();
    assert!(faults.is_empty(), "correct docs/glossary.md:\n{}", faults.join("\n"));
}

#[test]
fn a_missing_file_and_a_missing_item_are_found() {
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = "Paths are in `crates/cairn-testkit/tests`.\n\
        | a | b | `source_size.rs`: `sources`, `Sources::sources`; `gone.rs`: `sources` |\n\
        | a | b | `cairn_base::Tid`, `sources` |\n";
    let faults: Vec<String> = named(text).iter().filter_map(|name| fault(&root, name)).collect();
    let expected = [
        "line 2: crates/cairn-testkit/tests/source_size.rs has no `Sources`",
        "line 2: there is no crates/cairn-testkit/tests/gone.rs",
        "line 2: there is no crates/cairn-testkit/tests/gone.rs",
        "line 3: `sources` stands without its file",
    ];
    assert_eq!(faults, expected);
}
