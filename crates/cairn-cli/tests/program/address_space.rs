//! Commands with a limited address space (`ulimit -v`).

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use cairn_testkit::deep;
use cairn_testkit::judge::assert_clean;

use crate::support::{in_dir, works};

/// Runs it with so many bytes. True if it succeeds; a refusal is one line that names the limit.
fn succeeds(bytes: u64, words: &[&str]) -> bool {
    let mut command = Command::new("prlimit");
    command.arg(format!("--as={bytes}")).arg(env!("CARGO_BIN_EXE_cairn"));
    let output = command.args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        assert!(
            said.starts_with("cairn: ") && said.lines().count() == 1 && said.contains("ulimit -v"),
            "{bytes} bytes: {words:?}: {:?}: {said}",
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
            if succeeds(megabytes * 1_000_000, words) {
                worked.get_or_insert(megabytes);
            } else {
                assert_eq!(worked, None, "{words:?}: refused with {megabytes} MB");
            }
        }
        assert!(worked.is_some_and(|least| least <= 110), "{words:?}: {worked:?}");
    }
    assert_eq!(fs::read(&copy).unwrap(), fs::read(&source).unwrap());
}

/// Where it ends depends on what the threads of the process do meanwhile. A thread that starts
/// needs memory before its first statement, and the stack of the first thread needs it to grow.
#[test]
fn wherever_the_memory_ends_the_command_is_refused() {
    const LEAST: u64 = 54_000_000;
    const MOST: u64 = 78_000_000;
    let runs = if deep() { 12_000 } else { 600 };
    let (_dir, source) = in_dir("source");
    fs::write(&source, vec![7; 3 << 20]).unwrap();
    let puts = |client: u64| {
        let (_dir, image) = in_dir("disk.img");
        works(&["mkfs", "--size", "64M", &image]);
        let step = (MOST - LEAST) / runs;
        for run in (client..runs).step_by(6) {
            succeeds(LEAST + run * step, &["put", &image, &source, "/file"]);
        }
        works(&["put", &image, &source, "/file"]);
        assert_clean(Path::new(&image));
    };
    thread::scope(|scope| {
        for client in 0..6 {
            let puts = &puts;
            scope.spawn(move || puts(client));
        }
    });
}
