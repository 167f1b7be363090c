//! The pages of the book that mount.

use std::path::Path;

use cairn_testkit::place::Place;

use crate::fixture::{CAIRN, require_mounting};

#[path = "../book/mod.rs"]
mod pages;

#[test]
fn commands_that_mount_print_what_the_book_shows() {
    require_mounting();
    let below = ["unshare", "--mount", "--propagation", "private"];
    let all = pages::pages();
    let mut failed = Vec::new();
    for page in all.iter().filter(|page| page.mounts) {
        let place = Place::new();
        for difference in pages::differences(page, Path::new(CAIRN), &below, place.path()) {
            failed.push(format!("{}: {difference}", page.path.display()));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}
