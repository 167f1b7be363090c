//! A build to an object store that was killed leaves a volume, which the next one removes.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::{in_dir, works};

/// Makes a volume with such a name as an upload gives it. Returns the name.
fn upload(pool: &str, directory: &str) -> String {
    works(&["mkfs", "--size", "8M", &format!("{pool}@made")]);
    let manifest = std::fs::read_to_string(format!("{directory}/volumes/made")).unwrap();
    let manifest: Value = serde_json::from_str(manifest.lines().next().unwrap()).unwrap();
    let name = format!("unfinished-{}", manifest["id"].as_str().unwrap());
    for folder in ["volumes", "made"] {
        let at = |name: &str| format!("{directory}/{folder}/{name}");
        std::fs::rename(at("made"), at(&name)).unwrap();
    }
    name
}

/// Makes a volume.
fn made(pool: &str, name: &str) -> String {
    works(&["mkfs", "--size", "8M", &format!("{pool}@{name}")]);
    name.to_owned()
}

/// A process that has a volume open for writing.
fn writer(pool: &str, name: &str) -> Child {
    let address = format!("{pool}@{name}");
    let mut shell = Command::new(env!("CARGO_BIN_EXE_cairn"));
    let shell = shell.args(["shell", &address]).stdin(Stdio::piped()).stdout(Stdio::null());
    let shell = shell.spawn().unwrap();
    let is_open = || names(pool).iter().any(|(volume, writer)| volume == name && *writer);
    assert!(becomes_true(is_open), "{name} is not open");
    shell
}

/// Waits up to five seconds.
fn becomes_true(condition: impl Fn() -> bool) -> bool {
    (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        condition()
    })
}

/// The volumes of a pool, and whether a writer has each open.
fn names(pool: &str) -> Vec<(String, bool)> {
    let info: Value = serde_json::from_str(&works(&["info", "--json", "--pool", pool])).unwrap();
    let volumes = info["volumes"].as_array().unwrap_or_else(|| panic!("{info:#}"));
    let volume = |of: &Value| (of["name"].as_str().unwrap().to_owned(), !of["writer"].is_null());
    volumes.iter().map(volume).collect()
}

#[test]
fn only_volumes_of_builds_that_were_killed_are_removed() {
    let (_dir, path) = in_dir("pool");
    let pool = format!("file-store://{path}");
    let names_alone = || names(&pool).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let uploads = [upload(&pool, &path), upload(&pool, &path)];
    let mut dead = writer(&pool, &uploads[0]);
    let mut lives = writer(&pool, &uploads[1]);
    // Volumes that somebody has called so.
    let mut other = writer(&pool, &made(&pool, "unfinished-work"));
    let mut called = writer(&pool, &made(&pool, "unfinished-0123456789abcdef"));
    for killed in [&mut dead, &mut other, &mut called] {
        killed.kill().unwrap();
        killed.wait().unwrap();
    }
    works(&["build", &format!("{pool}@new")]);
    let mut left = ["new", &uploads[1], "unfinished-0123456789abcdef", "unfinished-work"];
    left.sort_unstable();
    assert_eq!(names_alone(), left);
    drop(lives.stdin.take());
    assert!(lives.wait().unwrap().success());
}
