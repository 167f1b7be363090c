//! Errors of the libraries name no options of the program `cairn`: programs in Rust, C and Python
//! show these errors, and have no such options.

use std::path::{Path, PathBuf};

/// The crates whose errors reach other programs.
const LIBRARIES: [&str; 5] = ["cairn", "cairn-block", "cairn-build", "cairn-images", "cairn-vfs"];
/// Whole commands, which an advice may name: whoever reads it can run them.
const COMMANDS: [&str; 4] =
    ["mdadm --assemble", "zstd --long", "qemu-img resize --shrink", "cairn check --take-back"];
/// Options of such commands that stand on a line of their own, and of a warning that only the
/// program prints.
const WORDS: [&str; 5] = ["--lazy):", "--target", "--mount", "--long=31", "--mtime"];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            sources(&path, found);
        } else if name.ends_with(".rs") && !name.contains("tests") {
            found.push(path);
        }
    }
}

/// The options that a line of a message names: two dashes and a letter, or `-F` and the like alone.
fn options(line: &str) -> Vec<String> {
    let starts = |word: &&str| {
        let bare = word.trim_start_matches(['`', '(', '"', '\'']);
        let mut letters = bare.chars().skip_while(|letter| *letter == '-');
        let dashes = bare.len() - bare.trim_start_matches('-').len();
        dashes == 2 && letters.next().is_some_and(|letter| letter.is_ascii_lowercase())
    };
    let words = line.split_whitespace().filter(|word| !WORDS.contains(word));
    words.filter(starts).map(str::to_owned).collect()
}

#[test]
fn messages_of_libraries_name_no_options_of_the_program() {
    let mut named = Vec::new();
    let mut files = Vec::new();
    for library in LIBRARIES {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        sources(&crates.join(library).join("src"), &mut files);
    }
    assert!(files.len() > 100, "{}", files.len());
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        for (number, line) in (1..).zip(code.lines()) {
            let is_comment = line.trim_start().starts_with("//");
            if !is_comment && !COMMANDS.iter().any(|command| line.contains(command)) {
                let found = options(line);
                named.extend(
                    found.iter().map(|word| format!("{}:{number}: {word}", file.display())),
                );
            }
        }
    }
    assert!(named.is_empty(), "{named:#?}");
    assert_eq!(options("give --size 1G, or (`--force`)"), ["--size", "(`--force`)"]);
}
