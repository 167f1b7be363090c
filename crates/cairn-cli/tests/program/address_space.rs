//! Commands with a limited address space (`ulimit -v`).

use std::fs;
use std::process::Command;

use crate::support::{in_dir, works};

/// Runs it with so many megabytes. True if it succeeds; a refusal is one line that names the limit.
fn succeeds(megabytes: u64, words: &[&str]) -> bool {
    let mut command = Command::new("prlimit");
    command.arg(format!("--as={}", megabytes * 1_000_000)).arg(env!("CARGO_BIN_EXE_cairn"));
    let output = command.args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        assert!(
            said.starts_with("cairn: ") && said.lines().count() == 1 && said.contains("ulimit -v"),
            "{megabytes} MB: {words:?}: {:?}: {said}",
            output.status
        );
    }
    output.status.success()
}

/// By default the allocator takes 128 MiB or 1 GiB at once, if it can. With a little more than that
/// nothing would be left for threads.
#[test]
fn what_works_with_a_limit_works_with_every_higher_one() {
    let (_dir, image) = in_dir("disk.img");
    let (_new_dir, new) = in_dir("new.img");
    let (_copy_dir, copy) = in_dir("copy");
    let source = format!("{copy}.source");
    fs::write(&source, vec![7; 3 << 20]).unwrap();
    works(&["mkfs", "--size", "64M", &image]);
    works(&["put", &image, &source, "/file"]);
    let commands: [&[&str]; 4] = [
        &["mkfs", "-F", "--size", "64M", &new],
        &["ls", &image],
        &["put", &image, &source, "/file"],
        &["get", &image, "/file", &copy],
    ];
    for words in commands {
        let mut worked = None;
        for megabytes in (60..=260).step_by(10).chain((1050..=1250).step_by(50)) {
            if succeeds(megabytes, words) {
                worked.get_or_insert(megabytes);
            } else {
                assert_eq!(worked, None, "{words:?}: refused with {megabytes} MB");
            }
        }
        assert!(worked.is_some_and(|least| least <= 80), "{words:?}: {worked:?}");
    }
    assert_eq!(fs::read(&copy).unwrap(), fs::read(&source).unwrap());
}
