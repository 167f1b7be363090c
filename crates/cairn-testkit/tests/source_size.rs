//! No file is longer than 450 lines, and no comment is wider than 100 columns.
//! (Functions: `too-many-lines-threshold` in clippy.toml. Width of code: `max_width` in
//! rustfmt.toml.)

use std::path::{Path, PathBuf};

/// Lines of a file, comments and empty ones included.
const MOST: usize = 450;

/// Columns of a line of a comment.
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

#[test]
fn no_comment_is_wider_than_the_code() {
    let mut wide = Vec::new();
    for path in sources(&["src", "benches", "tests", "examples"]) {
        for (at, line) in std::fs::read_to_string(&path).unwrap().lines().enumerate() {
            let comment = line.trim_start().starts_with("//");
            if comment && line.chars().count() > WIDEST && !may_be_wide(line) {
                wide.push(format!("{}:{}", path.display(), at + 1));
            }
        }
    }
    assert!(wide.is_empty(), "wider than {WIDEST} columns:\n{}", wide.join("\n"));
}
