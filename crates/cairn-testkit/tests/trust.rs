//! docs/trust.md names tests that exist.

use std::fs;
use std::path::{Path, PathBuf};

/// The file of a module, given its path without the extension.
fn module(path: &Path) -> Option<PathBuf> {
    let files = [path.with_extension("rs"), path.join("mod.rs"), path.join("main.rs")];
    files.into_iter().find(|file| file.is_file())
}

/// True if a test program has a module or a test of this path.
fn exists(target: &Path, path: &[&str]) -> bool {
    let Some((last, modules)) = path.split_last() else { return module(target).is_some() };
    let folder = modules.iter().fold(target.to_owned(), |folder, name| folder.join(name));
    let declares = |file: PathBuf| {
        let text = fs::read_to_string(file).unwrap_or_default();
        text.contains(&format!("\nfn {last}()")) || text.contains(&format!("\nmod {last};"))
    };
    module(&folder).is_some_and(declares)
}

#[test]
fn every_named_test_exists() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = fs::read_to_string(crates.join("../docs/trust.md")).unwrap();
    let mut count = 0;
    for line in page.lines().filter(|line| line.starts_with('|')) {
        for name in line.split('`').skip(1).step_by(2).filter(|name| name.starts_with("cairn-")) {
            let (package, test) = name.split_once(' ').expect("a crate and a test");
            let mut path = test.split("::");
            let target = crates.join(package).join("tests").join(path.next().unwrap());
            assert!(exists(&target, &path.collect::<Vec<_>>()), "there is no test {name}");
            count += 1;
        }
    }
    assert!(count > 50, "{count} tests were found: has the form of the page changed?");
}

/// docs/library.md shows programs as they are in files, which tests compile and run.
#[test]
fn the_page_of_the_library_shows_programs_that_tests_run() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(top.join("docs/library.md")).unwrap();
    let mut shown = 0;
    for part in page.split("<!-- ").skip(1) {
        let (file, rest) = part.split_once(" -->\n```").unwrap();
        let (_, rest) = rest.split_once('\n').unwrap();
        let (program, _) = rest.split_once("```\n").unwrap();
        assert_eq!(program, std::fs::read_to_string(top.join(file)).unwrap(), "{file}");
        shown += 1;
    }
    assert_eq!(shown, 3);
}
