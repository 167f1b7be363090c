//! The book: its commands print what it shows, its pages are all in its summary, and no link of the
//! documents leads nowhere.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

#[path = "../book/mod.rs"]
mod pages;

#[test]
fn commands_print_what_the_book_shows() {
    let program = Path::new(env!("CARGO_BIN_EXE_cairn"));
    let all = pages::pages();
    assert!(all.len() > 8, "{all:?}");
    let failed = pages::mistakes(all.iter().filter(|page| !page.mounts), program);
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The documents in Markdown, from the top of the repository.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in ["", "docs", "book"] {
        for entry in std::fs::read_dir(top().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|kind| kind == "md") {
                found.push(path);
            }
        }
    }
    found
}

/// The text without blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    })
}

/// The anchors of the headings of a page.
fn anchors(page: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(page).unwrap();
    let headings = prose(&text).filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept =
            words.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
    };
    headings.map(anchor).collect()
}

/// The places that links of a page name.
fn links(text: &str) -> Vec<String> {
    let prose: Vec<&str> = prose(text).collect();
    let text = prose.join("\n");
    let ends = text.split("](").skip(1);
    ends.filter_map(|rest| rest.split_once(')').map(|(link, _)| link.to_owned())).collect()
}

#[test]
fn no_link_leads_nowhere() {
    let mut broken = Vec::new();
    let mut seen = 0;
    for page in documents() {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            seen += 1;
            // The summary's links begin at the top, where the book is put together.
            let is_summary = page.ends_with("book/SUMMARY.md");
            let from = if is_summary { top() } else { page.parent().unwrap().to_owned() };
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { page.clone() } else { from.join(file) };
            let is_right =
                target.exists() && (anchor.is_empty() || anchors(&target).contains(anchor));
            if !is_right {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    for page in documents() {
        let text = std::fs::read_to_string(&page).unwrap();
        let included = text.split("{{#include ").skip(1).filter_map(|rest| rest.split("}}").next());
        let gone = included.filter(|file| !page.parent().unwrap().join(file).is_file());
        broken.extend(gone.map(|file| format!("{}: {file}", page.display())));
    }
    assert!(broken.is_empty() && seen > 100, "{seen} links, of which are broken: {broken:#?}");
}

#[test]
fn every_page_is_in_the_book() {
    let summary = std::fs::read_to_string(top().join("book/SUMMARY.md")).unwrap();
    let listed: BTreeSet<PathBuf> =
        links(&summary).into_iter().map(|link| top().join(link)).collect();
    let missing: Vec<PathBuf> = documents()
        .into_iter()
        .filter(|page| !page.ends_with("book/SUMMARY.md"))
        .filter(|page| !listed.contains(page))
        .collect();
    assert!(missing.is_empty(), "not in book/SUMMARY.md: {missing:#?}");
}
