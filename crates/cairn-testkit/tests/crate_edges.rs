//! The layers of the workspace: which crate may depend on which. Arrows go down only
//! (ARCHITECTURE.md).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Ordinary and build dependencies. Development dependencies may also name the test kit and the
/// facade.
const ALLOWED: [(&str, &[&str]); 22] = [
    ("cairn-base", &[]),
    ("cairn-block", &["cairn-base"]),
    ("cairn-images", &["cairn-base", "cairn-block"]),
    ("cairn-luks", &["cairn-base", "cairn-block"]),
    ("cairn-nbd", &["cairn-base", "cairn-block"]),
    ("cairn-objects", &["cairn-base", "cairn-block"]),
    ("cairn-cache", &["cairn-base", "cairn-block"]),
    ("cairn-vfs", &["cairn-base"]),
    ("cairn-check", &["cairn-base", "cairn-block"]),
    ("cairn-crash", &["cairn-base", "cairn-block", "cairn-vfs"]),
    ("cairn-jbd2", &["cairn-base", "cairn-block", "cairn-cache"]),
    (
        "cairn-ext4",
        &["cairn-base", "cairn-block", "cairn-cache", "cairn-check", "cairn-jbd2", "cairn-vfs"],
    ),
    ("cairn-f2fs", &["cairn-base", "cairn-block", "cairn-cache", "cairn-check", "cairn-vfs"]),
    ("cairn-fuse", &["cairn-base", "cairn-block", "cairn-vfs"]),
    (
        "cairn",
        &[
            "cairn-base",
            "cairn-block",
            "cairn-cache",
            "cairn-check",
            "cairn-ext4",
            "cairn-f2fs",
            "cairn-images",
            "cairn-jbd2",
            "cairn-luks",
            "cairn-nbd",
            "cairn-objects",
            "cairn-vfs",
        ],
    ),
    (
        "cairn-lab",
        &[
            "cairn",
            "cairn-base",
            "cairn-block",
            "cairn-cache",
            "cairn-crash",
            "cairn-ext4",
            "cairn-f2fs",
            "cairn-jbd2",
            "cairn-nbd",
            "cairn-objects",
            "cairn-vfs",
        ],
    ),
    ("cairn-build", &["cairn", "cairn-base", "cairn-images", "cairn-vfs"]),
    ("cairn-c", &["cairn", "cairn-base"]),
    ("cairn-python", &["cairn"]),
    (
        "cairn-cli",
        &[
            "cairn",
            "cairn-base",
            "cairn-block",
            "cairn-build",
            "cairn-check",
            "cairn-fuse",
            "cairn-lab",
            "cairn-nbd",
            "cairn-vfs",
        ],
    ),
    (
        "cairn-fuzz",
        &[
            "cairn",
            "cairn-base",
            "cairn-block",
            "cairn-build",
            "cairn-check",
            "cairn-ext4",
            "cairn-f2fs",
            "cairn-fuse",
            "cairn-images",
            "cairn-jbd2",
            "cairn-luks",
            "cairn-nbd",
            "cairn-vfs",
        ],
    ),
    ("cairn-testkit", &["cairn", "cairn-base", "cairn-block", "cairn-crash", "cairn-vfs"]),
];

#[derive(Default)]
struct Manifest {
    ordinary: BTreeSet<String>,
    development: BTreeSet<String>,
}

/// The names of this workspace's crates in a manifest's dependency tables (`name.workspace = true`
/// and longer forms).
fn parse(text: &str) -> Manifest {
    let mut manifest = Manifest::default();
    let mut table = String::new();
    for line in text.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            table = header.trim_end_matches(']').to_owned();
            // `[dependencies.cairn-base]`
            if let Some((kind, name)) = table.clone().rsplit_once('.') {
                manifest.add(kind, name);
            }
        } else if let Some((name, _)) = line.split_once(['.', '=', ' ']) {
            manifest.add(&table, name);
        }
    }
    manifest
}

impl Manifest {
    fn add(&mut self, table: &str, name: &str) {
        let name = name.trim_matches('"');
        if name != "cairn" && !name.starts_with("cairn-") {
            return;
        }
        // Also `target.'cfg(…)'.dependencies`.
        if table.ends_with("dev-dependencies") {
            self.development.insert(name.to_owned());
        } else if table.ends_with("dependencies") {
            self.ordinary.insert(name.to_owned());
        }
    }
}

fn manifests() -> BTreeMap<String, Manifest> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(crates).unwrap() {
        let path = entry.unwrap().path();
        if let Ok(text) = std::fs::read_to_string(path.join("Cargo.toml")) {
            found.insert(path.file_name().unwrap().to_str().unwrap().to_owned(), parse(&text));
        }
    }
    found
}

#[test]
fn crates_depend_only_downwards() {
    let allowed: BTreeMap<_, _> = ALLOWED.into_iter().collect();
    for (name, manifest) in manifests() {
        let allowed = allowed
            .get(name.as_str())
            .unwrap_or_else(|| panic!("{name} is not in the table of layers"));
        for dependency in &manifest.ordinary {
            assert!(
                allowed.contains(&dependency.as_str()),
                "{name} must not depend on {dependency}"
            );
        }
        for dependency in &manifest.development {
            let for_tests = matches!(dependency.as_str(), "cairn-testkit" | "cairn");
            // The tests of other languages' libraries read with the trait what these have written.
            let is_binding = name == "cairn-c" || name == "cairn-python";
            let fine = for_tests
                || allowed.contains(&dependency.as_str())
                || dependency == "cairn-block"
                || is_binding && dependency == "cairn-vfs";
            assert!(fine, "the tests of {name} must not depend on {dependency}");
        }
    }
}

#[test]
fn the_parser_sees_every_form() {
    let manifest = parse(
        "[package]\nname = \"x\"\n[dependencies]\ncairn-base.workspace = true\ncairn = { path = \
         \"..\" }\n\
         serde = \"1\"\n[dev-dependencies]\ncairn-testkit.workspace = \
         true\n[dependencies.cairn-vfs]\nworkspace = true\n",
    );
    assert_eq!(manifest.ordinary.iter().collect::<Vec<_>>(), ["cairn", "cairn-base", "cairn-vfs"]);
    assert_eq!(manifest.development.iter().collect::<Vec<_>>(), ["cairn-testkit"]);
}

#[test]
fn the_table_itself_is_a_hierarchy() {
    // Each row names only crates of earlier rows, so there is no cycle.
    for (index, (name, below)) in ALLOWED.iter().enumerate() {
        for dependency in *below {
            let place = ALLOWED.iter().position(|(other, _)| other == dependency);
            assert!(place.is_some_and(|place| place < index), "{name} → {dependency}");
        }
    }
}

/// docs/decisions.md says of each dependency of the workspace what it is for.
#[test]
fn every_dependency_is_a_decision() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read_to_string(top.join(path)).unwrap();
    let (manifest, page) = (read("Cargo.toml"), read("docs/decisions.md").to_lowercase());
    let is_word = |letter: char| letter.is_alphanumeric() || "_-".contains(letter);
    let words: BTreeSet<&str> = page.split(|letter| !is_word(letter)).collect();
    let (_, table) = manifest.split_once("[workspace.dependencies]\n").unwrap();
    let lines = table.lines().take_while(|line| !line.starts_with('['));
    let names = lines.filter_map(|line| Some(line.split_once(['.', ' ', '='])?.0));
    let foreign: Vec<&str> = names
        .filter(|name| name.chars().all(is_word) && *name != "cairn" && !name.starts_with("cairn-"))
        .collect();
    let missing: Vec<_> = foreign.iter().filter(|name| !words.contains(*name)).collect();
    assert!(missing.is_empty() && foreign.len() > 20, "{missing:?} of {foreign:?}");
}

/// Crates with `unsafe`: devices, and what C calls. PyO3's macros write some in cairn-python, whose
/// own files have none.
const UNSAFE: [&str; 3] = ["cairn-block", "cairn-c", "cairn-python"];

#[test]
fn only_devices_and_the_c_library_have_unsafe_code() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for name in manifests().keys() {
        let root = ["src/lib.rs", "src/main.rs"].map(|file| crates.join(name).join(file));
        let root = root.iter().find_map(|path| std::fs::read_to_string(path).ok()).unwrap();
        let forbids = root.contains("#![forbid(unsafe_code)]");
        assert_eq!(forbids, !UNSAFE.contains(&name.as_str()), "{name}");
    }
    let read = |path: &str| std::fs::read_to_string(crates.join(path)).unwrap();
    assert!(read("cairn-python/src/lib.rs").contains("#![deny(unsafe_code)]"));
    for file in std::fs::read_dir(crates.join("cairn-c/src")).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let is_raw = path.ends_with("raw.rs");
        assert_eq!(text.contains("unsafe {"), is_raw, "{}", path.display());
    }
}

/// What a registry of crates asks for, and what `cargo package` would refuse.
#[test]
fn every_crate_can_be_packed() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let workspace = std::fs::read_to_string(top.join("Cargo.toml")).unwrap();
    let version = workspace.lines().find_map(|line| line.strip_prefix("version = ")).unwrap();
    for line in workspace.lines().filter(|line| line.contains("path = \"crates/")) {
        // The kit is for tests only: cargo leaves it out of packed manifests.
        let own = format!("version = {version}");
        let is_kit = line.starts_with("cairn-testkit ");
        assert!(line.contains(&own) != is_kit, "a crate that is packed needs {own}: {line}");
    }
    for name in manifests().keys() {
        let path = top.join("crates").join(name).join("Cargo.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        for key in
            ["description = ", "version.workspace", "license.workspace", "repository.workspace"]
        {
            assert!(text.lines().any(|line| line.starts_with(key)), "{name}: {key}");
        }
        for line in text.lines().filter_map(|line| line.strip_prefix("readme = ")) {
            let readme = path.with_file_name(line.trim_matches('"'));
            assert!(readme.exists(), "{}", readme.display());
        }
        // A crate above this one, for tests, has a path and no version.
        let (ordinary, _) = text.split_once("[dev-dependencies]").unwrap_or((&text, ""));
        assert!(!ordinary.contains("path = \"../"), "{name}: use the workspace's dependencies");
    }
}
