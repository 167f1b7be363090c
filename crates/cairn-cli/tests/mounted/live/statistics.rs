//! The report of a live mount.

use std::fs::{self, File};
use std::io::Read;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{SIZE, cairn};
use crate::fixture::{CAIRN, Volume, stats};

/// The names in backticks of a section's row in docs/control.md.
fn documented_fields(section: &str) -> Vec<&'static str> {
    let row = format!("| `{section}` | ");
    let page = include_str!("../../../../../docs/control.md");
    let fields = page
        .lines()
        .find_map(|line| line.strip_prefix(&row))
        .unwrap_or_else(|| panic!("no row {section}"));
    fields.split('`').skip(1).step_by(2).collect()
}

#[test]
fn both_formats_have_every_documented_field_of_their_state() {
    // Values of `mode`, and what is there only when something has gone wrong.
    const OTHERS: &[&str] = &["rw", "ro", "read_only_reason", "journal_aborted"];
    for mut volume in [Volume::mounted(SIZE, ""), Volume::f2fs(SIZE, "")] {
        let state = &stats(&volume.root())["state"];
        for field in documented_fields("state").into_iter().filter(|field| !OTHERS.contains(field))
        {
            assert!(!state[field].is_null(), "{field} of {state}");
        }
        let (blocks, _) = volume.free();
        assert_eq!(state["free_blocks"], blocks, "{state}");
        volume.unmount();
    }
}

#[test]
fn stats_have_the_documented_shape() {
    let mut volume = Volume::mounted(SIZE, "commit=9");
    fs::write(volume.path("file"), vec![1; 100_000]).unwrap();
    File::open(volume.path("file")).unwrap().sync_all().unwrap();
    let found = stats(&volume.root());
    let number = |path: &str| {
        found.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path}: {found}"))
    };
    for path in [
        "/mount/pid",
        "/mount/uptime_s",
        "/options/commit",
        "/options/cache",
        "/state/free_blocks",
        "/journal/transactions",
        "/journal/checkpointed",
        "/journal/forced_checkpoints",
        "/journal/free_blocks",
        "/journal/clean_calls",
        "/journal/clean_steps",
        "/journal/commit_ns/p99",
        "/cache/folios_by_order/4K",
        "/cache/map_calls",
        "/cache/read",
        "/cache/write",
        "/cache/writeback",
        "/fuse/requests/create",
        "/fuse/requests/write",
        "/fuse/requests_total",
        "/fuse/queue_now",
        "/fuse/queue_peak",
        "/fuse/read_bytes",
        "/fuse/written_bytes",
        "/fuse/forgotten",
        "/fuse/request_ns/max",
        "/log/errors",
        "/log/warnings",
    ] {
        number(path);
    }
    assert_eq!(number("/options/commit"), 9);
    assert!(number("/journal/transactions") >= 1 && number("/fuse/written_bytes") >= 100_000);
    assert_eq!(found.pointer("/state/mode").unwrap(), "rw");
    assert_eq!(found.pointer("/mount/image").unwrap().as_str(), volume.image().to_str());
    assert_eq!(found.pointer("/options/mount/allow_other").unwrap(), true);
    let table = String::from_utf8(cairn(&["stats"], &volume.root()).stdout).unwrap();
    assert!(
        table.contains("\njournal\n") && table.contains("  commit                 9 s\n"),
        "{table}"
    );
    volume.unmount();
}

#[test]
fn stats_of_f2fs_have_the_documented_shape() {
    let mut volume = Volume::f2fs(SIZE, "");
    fs::write(volume.path("file"), vec![1; 100_000]).unwrap();
    for _ in 0..3 {
        File::open(volume.root()).unwrap().sync_all().unwrap();
        File::create_new(volume.path(&format!("new {}", volume.free().1))).unwrap();
    }
    let found = volume.stats();
    let number = |path: &str| {
        found.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path}: {found}"))
    };
    for path in [
        "/state/checkpoint_version",
        "/state/free_segments",
        "/store/space/free_blocks",
        "/store/space/reserved_sections",
        "/store/ckpt/queued",
        "/store/ckpt/issued",
        "/store/ckpt/total",
        "/store/ckpt/cur_ms",
        "/store/ckpt/peak_ms",
        "/store/ckpt/wait_ns/p50",
        "/store/ckpt/wait_ns/p99",
        "/store/ckpt/wait_ns/max",
        "/store/ckpt/written/fsync",
        "/store/ckpt/closed_ns/p99",
        "/store/segments/free_sections",
        "/store/segments/taken_whole",
        "/store/segments/taken_for_holes",
        "/store/nodes/dirty",
        "/store/nat/blocks_written",
        "/checkpoint/unusable_blocks",
        "/fsync/by_nodes",
        "/fsync/by_checkpoint",
        "/gc/calls_fg",
        "/gc/data_sections",
        "/gc/data_blocks_moved",
        "/gc/written/user",
    ] {
        number(path);
    }
    let merged = number("/store/ckpt/total");
    assert!(
        merged >= 3 && number("/store/ckpt/wait_ns/count") == merged,
        "{merged} requests: {found}"
    );
    assert!(
        (1..=merged).contains(&number("/store/ckpt/issued")) && number("/store/ckpt/queued") == 0,
        "{found}"
    );
    let table = String::from_utf8(cairn(&["stats"], &volume.root()).stdout).unwrap();
    for word in
        ["queued", "issued", "total", "cur", "peak", "wait", "p50", "p99", "max", "unusable_blocks"]
    {
        assert!(table.contains(word), "{word}: {table}");
    }
    volume.unmount();
}

#[test]
fn watching_goes_on_until_the_end() {
    let mut volume = Volume::mounted(SIZE, "");
    let output = cairn(&["stats", "--json", "--watch=0.01", "--count=3"], &volume.root());
    let lines: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 3);
    let mut command = Command::new(CAIRN);
    command.args(["stats", "--json", "--watch=0.05"]).arg(volume.root());
    let mut watcher = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut byte = [0];
    watcher.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
    volume.unmount();
    let mut rest = String::new();
    watcher.stdout.take().unwrap().read_to_string(&mut rest).unwrap();
    assert!(watcher.wait().unwrap().success());
}
