//! No file is longer than 450 lines, and no line is wider than 100 columns: rustfmt breaks code at
//! that width (`max_width`), but neither comments nor strings, nor what is in macros.
//! (Functions: `too-many-lines-threshold` in clippy.toml.) And no message sends a user to another
//! program for what Cairn does.

use std::path::{Path, PathBuf};

/// Lines of a file, comments and empty ones included.
const MOST: usize = 450;

/// Columns of a line.
const WIDEST: usize = 100;

/// The files below `folder` that have this extension.
fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|known| known == extension) {
            found.push(path);
        }
    }
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// The Rust files of the workspace's crates in these folders of each.
fn sources(folders: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(crates()).unwrap() {
        for part in folders {
            let folder = entry.as_ref().unwrap().path().join(part);
            if folder.is_dir() {
                files(&folder, "rs", &mut found);
            }
        }
    }
    assert!(found.len() > 500, "the sources are not where this test looks");
    found
}

#[test]
fn no_file_is_longer_than_a_reader_can_hold() {
    let long: Vec<_> = sources(&["src", "benches", "examples", "tests"])
        .iter()
        .map(|path| (std::fs::read_to_string(path).unwrap().lines().count(), path))
        .filter(|(lines, _)| *lines > MOST)
        .map(|(lines, path)| format!("{}: {lines} lines", path.display()))
        .collect();
    assert!(long.is_empty(), "longer than {MOST} lines, split by concept:\n{}", long.join("\n"));
}

/// A table's row cannot be broken, nor can an address.
fn may_be_wide(line: &str) -> bool {
    line.trim_start_matches(['/', '!', ' ']).starts_with('|') || line.contains("://")
}

/// The number of `#` of the raw string that begins in this line, and what follows its quote.
fn raw_string(line: &str) -> Option<(usize, &str)> {
    line.match_indices('r').find_map(|(at, _)| {
        let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
        if line[..at].trim_end_matches(['b', 'c']).ends_with(is_name) {
            return None;
        }
        let opened = line[at + 1..].trim_start_matches('#');
        let hashes = line.len() - at - 1 - opened.len();
        opened.strip_prefix('"').map(|rest| (hashes, rest))
    })
}

/// Numbers of the wide lines, from 1. Scripts in raw strings may be wide.
fn wide_lines(text: &str) -> Vec<usize> {
    let mut wide = Vec::new();
    let mut raw: Option<usize> = None;
    for (at, line) in text.lines().enumerate() {
        let mut touched = raw.is_some();
        let mut rest = line;
        loop {
            if let Some(hashes) = raw {
                let close = format!("\"{}", "#".repeat(hashes));
                let Some(end) = rest.find(&close) else { break };
                rest = &rest[end + close.len()..];
                raw = None;
            } else {
                let Some((hashes, inside)) = raw_string(rest) else { break };
                rest = inside;
                raw = Some(hashes);
                touched = true;
            }
        }
        if line.chars().count() > WIDEST && !touched && !may_be_wide(line) {
            wide.push(at + 1);
        }
    }
    wide
}

#[test]
fn no_line_is_wider_than_a_page() {
    let mut wide = Vec::new();
    for path in sources(&["src", "benches", "tests", "examples"]) {
        for line in wide_lines(&std::fs::read_to_string(&path).unwrap()) {
            wide.push(format!("{}:{line}", path.display()));
        }
    }
    assert!(wide.is_empty(), "wider than {WIDEST} columns:\n{}", wide.join("\n"));
}

#[test]
fn only_raw_strings_tables_and_addresses_may_be_wide() {
    let long = "x".repeat(WIDEST + 1);
    let text = format!(
        "// {long}\n\"{long}\"\nr#\"{long}\n{long}\" {long}\n\"#\n{long}\nlet var\"{long}\";\n\
         //! | {long} |\n// https://{long}\nbr\"\" + \"{long}\"\nfoobar\"{long}\""
    );
    assert_eq!(wide_lines(&text), [1, 2, 6, 7, 11], "{text}");
}

/// A string without the line breaks that a backslash takes out of it.
fn joined(text: &str) -> String {
    let mut parts = text.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |whole, part| whole + part.trim_start())
}

/// Checkers of others are named where `cairn check --repair` does not do it: `e2fsck -f` also sets
/// when a volume was checked.
#[test]
fn advice_for_damage_is_the_command_of_this_program() {
    let mut wrong = Vec::new();
    for path in sources(&["src"]) {
        let text = joined(&std::fs::read_to_string(&path).unwrap());
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let line = line.replace('`', "");
            let advice = ["run e2fsck", "run fsck", "with e2fsck", "with fsck"];
            let found = advice.iter().find_map(|words| line.split_once(words));
            if found.is_some_and(|(_, rest)| !rest.starts_with(" -f")) {
                wrong.push(format!("{}: {}", path.display(), line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "say `cairn check --repair`:\n{}", wrong.join("\n"));
}
