//! The corpus: inputs that the fuzzer has found, each of which reaches code that no other does, and
//! those that once were findings (`found-…`). All are run without the fuzzer.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use cairn_fuzz::TARGETS;

/// Most bytes of the corpus, with the base images.
const MOST: u64 = 2 << 20;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// The files of a folder, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let found =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = found.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn every_input_is_survived() {
    let mut wrong = Vec::new();
    for target in TARGETS {
        let files = files(&corpus().join(target.name));
        assert!(files.len() > 1, "{} has no corpus", target.name);
        for file in &files {
            let bytes = fs::read(file).unwrap();
            assert!(bytes.len() <= target.most, "{} is too long", file.display());
            if catch_unwind(AssertUnwindSafe(|| (target.run)(&bytes))).is_err() {
                wrong.push(format!("scripts/fuzz try {} {}", target.name, file.display()));
            }
        }
        println!("{}: {} inputs", target.name, files.len());
    }
    assert!(wrong.is_empty(), "these panic:\n{}", wrong.join("\n"));
}

#[test]
fn the_corpus_is_small() {
    let folders = files(&corpus());
    let size = |file: &PathBuf| fs::metadata(file).unwrap().len();
    let all: u64 = folders.iter().flat_map(|folder| files(folder)).map(|file| size(&file)).sum();
    assert!(all <= MOST, "the corpus has {all} bytes: make fuzz-minimise");
    let names: Vec<_> = TARGETS.iter().map(|target| target.name).chain(["bases"]).collect();
    for folder in folders {
        let name = folder.file_name().unwrap().to_str().unwrap();
        assert!(names.contains(&name), "{name} is no target");
    }
}

/// scripts/fuzz names the same targets.
#[test]
fn the_script_knows_every_target() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/fuzz");
    let script = fs::read_to_string(script).unwrap();
    let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
    assert!(script.contains(&format!("all='{}'", names.join(" "))));
    // With the longest input that each takes: `a | b) echo 4096 ;;`, and the rest is `*`.
    let longest = |name: &str| {
        let cases = script.split(";;").filter_map(|case| case.rsplit_once(") echo "));
        let mut cases = cases.map(|(names, most)| {
            let names = names.rsplit(['\n', ';']).next().unwrap_or_default();
            (names.split('|').map(str::trim).collect::<Vec<_>>(), most.trim())
        });
        let found = cases.find(|(names, _)| names.contains(&name) || names.contains(&"*"));
        found.and_then(|(_, most)| most.parse().ok())
    };
    for target in TARGETS {
        assert_eq!(longest(target.name), Some(target.most), "{}", target.name);
    }
}
