//! Files are small enough to be read whole. (Functions: `too-many-lines-threshold` in clippy.toml.)

use std::path::{Path, PathBuf};

/// Lines of a file, comments and empty ones included.
const MOST: usize = 450;

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_file_is_longer_than_a_reader_can_hold() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&crates).unwrap() {
        for part in ["src", "benches"] {
            let folder = entry.as_ref().unwrap().path().join(part);
            if folder.is_dir() {
                sources(&folder, &mut found);
            }
        }
    }
    assert!(found.len() > 500, "the sources are not where this test looks");
    let long: Vec<_> = found
        .iter()
        .map(|path| (std::fs::read_to_string(path).unwrap().lines().count(), path))
        .filter(|(lines, _)| *lines > MOST)
        .map(|(lines, path)| format!("{}: {lines} lines", path.strip_prefix(&crates).unwrap().display()))
        .collect();
    assert!(long.is_empty(), "longer than {MOST} lines, split by concept:\n{}", long.join("\n"));
}
