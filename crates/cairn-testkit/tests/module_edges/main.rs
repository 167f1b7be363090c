//! The floors inside the crates: no circle of files in any of them.
//!
//! File A depends on file B of its crate if A names an item that B defines. A re-export (`pub use`)
//! passes a name on and is no dependency by itself; tests inside a file (`#[cfg(test)]`) do not
//! count, nor do method calls, whose owner the text does not tell.
//!
//! The same reading of the sources gives what the facade offers (`public_names`, `signature`).

mod circles;
mod names;
mod public_names;
mod signature;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use circles::circles;
use tree::Crate;

/// For each file the files that it depends on, each with the names that it takes from there.
type Edges = BTreeMap<PathBuf, BTreeMap<PathBuf, BTreeSet<String>>>;

fn edges(sources: &Path) -> Edges {
    let parsed = Crate::read(sources);
    let mut edges = Edges::new();
    for (from, to, name) in names::uses(&parsed) {
        if from != to {
            edges.entry(from).or_default().entry(to).or_default().insert(name);
        }
    }
    edges
}

fn describe(edges: &Edges, circle: &BTreeSet<PathBuf>, sources: &Path) -> String {
    let short = |path: &Path| path.strip_prefix(sources).unwrap().display().to_string();
    let mut text = String::new();
    for from in circle {
        for (to, names) in edges[from].iter().filter(|(to, _)| circle.contains(*to)) {
            let names = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            text += &format!("\n  {} uses {names} of {}", short(from), short(to));
        }
    }
    text
}

#[test]
fn no_crate_has_a_circle_of_files() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
    let mut found = String::new();
    for entry in std::fs::read_dir(crates).unwrap() {
        let folder = entry.unwrap().path();
        let (name, sources) = (folder.file_name().unwrap().to_str().unwrap(), folder.join("src"));
        let edges = edges(&sources);
        for circle in circles(&edges) {
            found +=
                &format!("\n{name}: {} files{}", circle.len(), describe(&edges, &circle, &sources));
        }
    }
    assert!(found.is_empty(), "move what both sides of a circle need below them{found}");
}

/// What the test above would overlook if the reading of the sources were wrong.
#[test]
fn every_way_to_name_an_item_is_seen() {
    let sources = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = sources.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("lib.rs", "mod first; mod folder; mod last; pub use first::First;");
    write(
        "first.rs",
        "use crate::folder::Inner; pub struct First; pub const LIMIT: u8 = 1; fn f() { \
         crate::last::go() }",
    );
    write("folder/mod.rs", "mod inner; pub use inner::*; pub struct Outer; pub fn inner() {}");
    write(
        "folder/inner.rs",
        "use super::Outer; pub struct Inner; pub fn deep() {} #[cfg(test)] mod tests { use \
         crate::last::Last; }",
    );
    let flags = "flags! { /// See [`crate::folder::Inner`].\n }";
    let go = "pub fn go() { log!(at, crate::folder::Outer, \"go {LIMIT}\") }";
    let module = "fn f() { crate::folder::inner::deep(); crate::folder::inner() }";
    write(
        "last.rs",
        &format!("use crate::First; use crate::first::*; pub struct Last; {flags} {go} {module}"),
    );
    let edges = edges(sources.path());
    let found: Vec<_> = edges
        .iter()
        .flat_map(|(from, uses)| uses.iter().map(move |(to, names)| (from, to, names)))
        .map(|(from, to, names)| {
            let short =
                |path: &Path| path.strip_prefix(sources.path()).unwrap().display().to_string();
            format!("{} {} {names:?}", short(from), short(to))
        })
        .collect();
    assert_eq!(
        found,
        [
            r#"first.rs folder/inner.rs {"Inner"}"#,
            r#"first.rs last.rs {"go"}"#,
            r#"folder/inner.rs folder/mod.rs {"Outer"}"#,
            r#"last.rs first.rs {"First", "LIMIT"}"#,
            r#"last.rs folder/inner.rs {"deep"}"#,
            r#"last.rs folder/mod.rs {"Outer", "inner"}"#,
        ]
    );
    let circles = circles(&edges);
    assert_eq!(circles.len(), 1);
    assert_eq!(circles[0].len(), 2, "{circles:?}");
}
