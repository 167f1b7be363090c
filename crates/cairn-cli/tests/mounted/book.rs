//! The pages of the book that mount.

use std::path::Path;

use crate::fixture::{CAIRN, require_mounting};

#[path = "../book/mod.rs"]
mod pages;

#[test]
fn commands_that_mount_print_what_the_book_shows() {
    require_mounting();
    let all = pages::pages();
    let failed = pages::mistakes(all.iter().filter(|page| page.mounts), Path::new(CAIRN));
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}
