//! `cairn lab`: the structure of its results, and the counts that do not depend on the machine's
//! speed.

mod crash;
mod ended;

#[path = "../as_user/mod.rs"]
mod as_user;

use std::os::unix::fs::chown;
use std::path::Path;

use assert_cmd::Command;
use cairn_testkit::judge;
use cairn_testkit::place::Place;
use serde_json::Value;

use self::as_user::{Reachable, USER};

fn lab(args: &[&str]) -> (i32, String, String) {
    run(Command::cargo_bin("cairn").unwrap(), args)
}

fn run(mut program: Command, args: &[&str]) -> (i32, String, String) {
    let output = program.arg("lab").args(args).env_remove("CAIRN_LOG").output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// The JSON of a run at quick scale with one repetition.
fn json(args: &[&str]) -> Value {
    json_of(Command::cargo_bin("cairn").unwrap(), args)
}

/// As [`json`], of an ordinary user who may mount.
fn json_as_user(args: &[&str]) -> Value {
    if !judge::is_root() {
        return json(args);
    }
    let reachable = Reachable::copy(Path::new(env!("CARGO_BIN_EXE_cairn")));
    let words = reachable.words(true);
    let place = Place::new();
    chown(place.path(), Some(USER), Some(USER)).unwrap();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(&reachable.program);
    command.current_dir(place.path()).env("TMPDIR", place.path());
    json_of(command, args)
}

fn json_of(program: Command, args: &[&str]) -> Value {
    let (code, stdout, stderr) =
        run(program, &[args, &["--scale", "quick", "--reps", "1", "--json"]].concat());
    assert_eq!((code, stderr.as_str()), (0, ""), "no progress where there is no terminal");
    serde_json::from_str(&stdout).unwrap()
}

fn section<'r>(record: &'r Value, id: &str) -> &'r Value {
    let sections = record["sections"].as_array().unwrap();
    sections.iter().find(|section| section["id"] == id).unwrap_or_else(|| panic!("no section {id}"))
}

/// The median of a metric.
fn median(record: &Value, id: &str, row: &str, subject: &str, metric: &str) -> f64 {
    let rows = section(record, id)["rows"].as_array().unwrap();
    let found = rows.iter().find(|line| line["row"] == row && line["subject"] == subject);
    let value =
        &found.unwrap_or_else(|| panic!("no row {row} of {subject}"))["values"][metric]["median"];
    value.as_f64().unwrap_or_else(|| panic!("{row}, {subject}: no {metric}"))
}

/// Every figure has a sample, in order and finite; every goal has a verdict.
fn check_structure(record: &Value, experiment: &str) {
    assert_eq!(record["schema"], 1);
    assert_eq!(record["experiment"], experiment);
    assert_eq!(
        (&record["scale"], &record["repetitions"]),
        (&Value::from("quick"), &Value::from(1))
    );
    assert!(record["machine"]["memory_bytes"].as_u64() > Some(0));
    assert!(record["command"].as_str().unwrap().starts_with(&format!("cairn lab {experiment}")));
    for section in record["sections"].as_array().unwrap() {
        assert!(!section["rows"].as_array().unwrap().is_empty(), "{section}");
        for row in section["rows"].as_array().unwrap() {
            for (name, spread) in row["values"].as_object().unwrap() {
                let figure = |key: &str| spread[key].as_f64().unwrap();
                let order = ["min", "q1", "median", "q3", "max"].map(figure);
                assert!(order.is_sorted() && order[0] >= 0.0, "{row} {name}");
                assert_eq!(spread["samples"].as_array().unwrap().len(), 1, "{row} {name}");
            }
        }
    }
    for goal in record["goals"].as_array().unwrap() {
        let measured = goal["measured"].is_number();
        assert_eq!(measured, goal["verdict"] != "not_measured", "{goal}");
    }
}

#[test]
fn experiments_are_listed() {
    let (code, stdout, _) = lab(&["list"]);
    assert_eq!(code, 0);
    for name in [
        "buffered-io",
        "async-checkpoint",
        "async-media",
        "checkpoint-clean",
        "checkpoint-merge",
        "gc-victim",
        "gc-sweep",
        "mount",
        "object-store",
        "ops",
        "other-formats",
        "remote",
    ] {
        assert!(stdout.lines().any(|line| line.starts_with(name)), "{stdout}");
    }
    let list: Value = serde_json::from_str(&lab(&["list", "--json"]).1).unwrap();
    assert!(
        list.as_array()
            .unwrap()
            .iter()
            .all(|entry| entry["question"].as_str().unwrap().ends_with('?'))
    );
}

#[test]
fn wrong_names_and_paths_are_told_at_once() {
    let (code, _, stderr) = lab(&["bufered-io"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("bufered-io") && stderr.contains("buffered-io"), "{stderr}");
    let (code, stdout, stderr) = lab(&["buffered-io", "--html", "/no/such/report.html"]);
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(stderr.contains("/no/such"), "{stderr}");
}

#[test]
fn buffered_io_in_process() {
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("report.html");
    let record = json(&["buffered-io", "--no-mount", "--html", page.to_str().unwrap()]);
    check_structure(&record, "buffered-io");
    let rows = |id| section(&record, id)["rows"].as_array().unwrap().len();
    assert_eq!(rows("reads"), 9 * 2);
    assert_eq!(rows("writes-cached"), 6 * 3);
    assert_eq!((rows("writes-ramdisk"), rows("writes-disk")), (12 * 2, 12 * 2));
    large_paths_ask_less(&record);
    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.contains("<svg") && html.contains("ramdisk append sync 64K"));
}

/// A mapping call and a folio for each megabyte where the per-block path has 256.
fn large_paths_ask_less(record: &Value) {
    for row in ["cached append 1M", "cached overwrite 1M"] {
        let of = |subject, metric| median(record, "writes-cached", row, subject, metric);
        assert!(of("buffered_iomap", "map_calls_per_mib") <= 1.0, "{row}");
        assert!(of("nobuffered_iomap", "map_calls_per_mib") >= 256.0, "{row}");
        assert!(of("buffered_iomap", "folios_per_mib") <= 2.0, "{row}");
        assert!(of("nobuffered_iomap", "folios_per_mib") >= 256.0, "{row}");
        assert_eq!(
            of("buffered_iomap", "journal_blocks_per_mib"),
            0.0,
            "{row}: nothing is written back"
        );
    }
    let hole = |subject| median(record, "reads", "hole 1M", subject, "map_calls_per_mib");
    assert!(hole("buffered_iomap") <= 1.0 && hole("nobuffered_iomap") >= 256.0);
    let peak =
        median(record, "memory", "write 10 × the budget", "buffered_iomap", "peak_of_budget");
    assert!((0.1..=1.0).contains(&peak), "{peak}");
    let logged =
        |row| median(record, "writes-ramdisk", row, "buffered_iomap", "journal_blocks_per_mib");
    assert!(logged("ramdisk append sync 4K") > logged("ramdisk append write-back 4K"));
}

#[test]
fn buffered_io_through_mounts() {
    let record = json(&["buffered-io"]);
    check_structure(&record, "buffered-io");
    for subject in ["cairn", "kernel", "fuse2fs"] {
        for row in ["ramdisk 1M", "disk append sync 1M", "cached random overwrite 4K"] {
            assert!(median(&record, "mounted", row, subject, "mib_per_s") > 0.0, "{row} {subject}");
        }
    }
    let journal =
        |subject| median(&record, "journal", "append sync 1M", subject, "journal_blocks_per_mib");
    assert!(journal("kernel") > 0.0 && journal("buffered_iomap") > 0.0);
}

#[test]
fn async_checkpoint_in_process() {
    let record = json(&["async-checkpoint", "--no-mount"]);
    check_structure(&record, "async-checkpoint");
    for id in ["journal-4m", "journal-16m", "journal-1g"] {
        assert_eq!(section(&record, id)["rows"].as_array().unwrap().len(), 7 * 2);
        // Each fsync is durable, so there were commits.
        assert!(median(&record, id, "-S 1", "async_checkpoint", "transactions") > 1.0);
    }
    assert_eq!(median(&record, "journal-1g", "-S 3", "noasync_checkpoint", "stalls"), 0.0);
    assert_eq!(
        median(&record, "shared-commits", "1 thread", "noasync_checkpoint", "files_per_commit"),
        1.0
    );
}

#[test]
fn async_checkpoint_on_media_takes_the_models_time() {
    let record = json(&["async-media"]);
    check_structure(&record, "async-media");
    let of =
        |id: &str, subject: &str, metric: &str| median(&record, id, "4 MiB, -S 1", subject, metric);
    for id in ["sd-card", "emmc", "sata-ssd", "nvme"] {
        assert_eq!(section(&record, id)["rows"].as_array().unwrap().len(), 3 * 2 * 3);
        assert_eq!(of(id, "never full", "efficiency"), 1.0);
        assert_eq!(of(id, "never full", "stalls"), 0.0);
        assert!(of(id, "async_checkpoint", "fill_per_s") > 0.0);
    }
    assert_eq!(section(&record, "parts")["rows"].as_array().unwrap().len(), 4 * 2 * 7);
    let transactions = |part| median(&record, "parts", "NVMe, -S 1", part, "transactions");
    assert!(transactions("+ shared commits") < transactions("as Linux"), "commits are shared");
    // A model's second costs no second: an SD card is slower than NVMe by its model alone.
    let rate = |id| of(id, "noasync_checkpoint", "files_per_s");
    assert!(rate("sd-card") * 10.0 < rate("nvme"), "{} {}", rate("sd-card"), rate("nvme"));
}

#[test]
fn checkpoint_merge_shares_checkpoints() {
    let record = json_as_user(&["checkpoint-merge"]);
    check_structure(&record, "checkpoint-merge");
    let rows = |id| section(&record, id)["rows"].as_array().unwrap().len();
    assert_eq!((rows("threads"), rows("clients"), rows("mounted")), (2 * 2, 7 * 2, 3 * 2));
    assert_eq!(rows("latency"), 7 * 3);
    for option in ["nocheckpoint_merge", "checkpoint_merge"] {
        // Each touch needs a checkpoint, and no other client shares it.
        assert_eq!(median(&record, "clients", "1 client", option, "per_1000"), 1000.0, "{option}");
    }
    assert!(median(&record, "clients", "16 clients", "checkpoint_merge", "merged") > 2.0);
}

#[test]
fn checkpoint_clean_looks_at_no_more_than_it_must() {
    let record = json(&["checkpoint-clean"]);
    check_structure(&record, "checkpoint-clean");
    for (mode, most) in [("counted", 1.0), ("bail_out", 1.0)] {
        let subject = format!("checkpoint_clean={mode}");
        let looks = median(&record, "commit-cost", "10000 listed", &subject, "looks_per_commit");
        assert!(looks <= most, "{mode}: {looks}");
        // The regression of 2023: the walk continued past transactions that it could not free.
        let row = "-s 1024 -n 10000 -D 100 -N 100";
        let excess = median(&record, "visits", row, &subject, "looks_beyond_freed_per_cleaning");
        assert!(excess <= 1.0, "{mode}: {excess}");
    }
    // Counted step by step, so the machine's speed does not matter.
    let instructions = |row| {
        let subject = "checkpoint_clean=counted";
        median(&record, "commit-cost", row, subject, "instructions_per_commit")
    };
    let (short, long) = (instructions("10 listed"), instructions("10000 listed"));
    assert!(short > 1000.0 && (long / short - 1.0).abs() < 0.05, "{short} {long}");
    let scan =
        median(&record, "commit-cost", "10000 listed", "checkpoint_clean=scan", "looks_per_commit");
    assert!(scan >= 10_000.0, "{scan}");
}

#[test]
fn a_result_is_compared_with_an_earlier_one() {
    let dir = tempfile::tempdir().unwrap();
    let before = dir.path().join("before.json");
    let before = before.to_str().unwrap();
    let clean = ["checkpoint-clean", "--scale", "quick", "--reps", "2"];
    let (_, stdout, _) = lab(&[&clean[..], &["--json"]].concat());
    // Everything was a hundred times as much.
    let mut record: Value = serde_json::from_str(&stdout).unwrap();
    let times = |value: &Value| Value::from(value.as_f64().unwrap() * 100.0);
    let table = record["sections"][0]["rows"].as_array_mut().unwrap();
    for row in table.iter_mut() {
        for spread in row["values"].as_object_mut().unwrap().values_mut() {
            let median = times(&spread["median"]);
            spread["median"] = median;
            let samples: Vec<Value> =
                spread["samples"].as_array().unwrap().iter().map(times).collect();
            spread["samples"] = samples.into();
        }
    }
    std::fs::write(before, record.to_string()).unwrap();
    let (code, stdout, _) = lab(&[&clean[..], &["--compare", before]].concat());
    assert_eq!(code, 0);
    assert!(stdout.contains("Changed since the earlier result"), "{stdout}");
    assert!(stdout.contains("not judged") && !stdout.contains("| met"), "quick gives no verdicts");
    let (_, stdout, _) = lab(&[&clean[..], &["--compare", before, "--json"]].concat());
    let record: Value = serde_json::from_str(&stdout).unwrap();
    let looks = record["changes"].as_array().unwrap().iter().find(|change| {
        change["row"] == "10000 listed"
            && change["subject"] == "checkpoint_clean=scan"
            && change["metric"].as_str().unwrap().contains("looks")
    });
    let ratio = looks.unwrap()["ratio"].as_f64().unwrap();
    assert!((0.009..0.011).contains(&ratio), "{ratio}");
    // Both are checked before the measurement.
    let (code, _, stderr) = lab(&["checkpoint-clean", "--compare", before]);
    assert!(code == 2 && stderr.contains("--scale default"), "{code} {stderr}");
    std::fs::write(before, "{}").unwrap();
    let (code, _, stderr) = lab(&[&clean[..], &["--compare", before]].concat());
    assert!(code == 2 && stderr.contains("not a result of `cairn lab"), "{code} {stderr}");
}

#[test]
fn other_formats_are_measured() {
    let record = json(&["other-formats"]);
    check_structure(&record, "other-formats");
    let rows = |id| section(&record, id)["rows"].as_array().unwrap().len();
    assert_eq!((rows("group-commit"), rows("folios"), rows("ahead")), (7 * 2, 21 * 2, 2 * 2));
    let commits =
        |subject| median(&record, "group-commit", "16 clients", subject, "commits_per_1000");
    assert!(commits("gathered") < commits("at once"), "callers share commits");
    let folios = |option| median(&record, "folios", "cached append 1M", option, "folios_per_mib");
    assert!(folios("buffered_iomap") * 10.0 < folios("nobuffered_iomap"));
}

#[test]
fn filesystems_on_an_object_store_are_measured() {
    let record = json(&["object-store"]);
    check_structure(&record, "object-store");
    let of = |id, row: &str, metric| median(&record, id, row, "log volume", metric);
    for format in ["ext4", "f2fs"] {
        let requests = of("fsync", &format!("{format}, 1 client"), "requests");
        assert!((1.0..2.5).contains(&requests), "{format}: {requests} requests for an fsync");
        let shared = of("fsync", &format!("{format}, 32 clients"), "files_per_put");
        assert!(shared > 1.0, "{format}: {shared}");
        assert!(of("listing", &format!("{format}, ls -lR"), "requests") < 60.0, "{format}");
        assert!(of("stream", format, "amplification") < 1.5, "{format}");
    }
    assert!(of("copies", "clone of 100 GiB", "requests") < 20.0);
    assert!(of("cleaning", "repack", "put") > 0.0);
}

#[test]
fn volumes_behind_nbd_are_measured() {
    let record = json(&["remote"]);
    check_structure(&record, "remote");
    let rows = |id| section(&record, id)["rows"].as_array().unwrap().len();
    assert_eq!((rows("streams"), rows("fsync"), rows("fsync-delay")), (2 * 4, 3 * 2, 3 * 2));
    let flushes =
        |threads| median(&record, "fsync-delay", threads, "2 connections", "flushes_per_1000");
    assert!(flushes("32 threads") < flushes("1 thread") / 2.0, "callers share flushes");
}

#[test]
fn ops_counts_the_allocations_of_an_operation() {
    let record = json(&["ops"]);
    check_structure(&record, "ops");
    for threads in [1, 2, 4, 8] {
        let id = format!("threads-{threads}");
        assert_eq!(section(&record, &id)["rows"].as_array().unwrap().len(), 9 * 2);
    }
    for subject in ["ext4", "f2fs"] {
        let of = |row, metric| median(&record, "threads-1", row, subject, metric);
        assert!(of("create", "ns") > 0.0 && of("create", "cpu_ns") > 0.0);
        // The new inode at least. What is in memory already takes none.
        assert!(of("create", "allocations") >= 1.0, "{subject}");
        for row in ["getattr", "lookup", "rename"] {
            assert!(of(row, "allocations") < 1.0, "{subject}: {row}");
        }
        // Other threads' allocations count, too.
        let limits = [
            ("create", 8.0),
            ("unlink", 4.0),
            ("create + write 4K", 18.0),
            ("create + write 4K + fsync", 60.0),
            ("write 4K + fsync", 26.0),
        ];
        for (row, most) in limits {
            let found = of(row, "allocations");
            assert!(found < most, "{subject}: {row} takes {found}");
        }
    }
}

#[test]
fn mount_compares_cairn_with_an_empty_server() {
    let record = json(&["mount"]);
    check_structure(&record, "mount");
    let of = |row, subject, metric| median(&record, "mount", row, subject, metric);
    for subject in ["kernel", "fuse2fs", "empty", "empty, fewest", "ext4", "f2fs"] {
        for row in ["fs_mark -S 1 -t 8, files/s", "1 MiB cold read, MiB/s", "rm -rf, files/s"] {
            assert!(of(row, subject, "rate") > 0.0, "{row} {subject}");
        }
    }
    // Each goal is judged on each transport. Whether there are rings depends on the machine.
    let goals = record["goals"].as_array().unwrap();
    let on = |transport: &str| {
        let text = |goal: &Value| goal["text"].as_str()?.strip_prefix(transport).map(String::from);
        goals.iter().filter_map(|goal| Some((text(goal)?, goal["measured"].is_number()))).collect()
    };
    let (device, rings): (Vec<_>, Vec<_>) = (on("/dev/fuse, "), on("rings, "));
    assert!(device.iter().all(|(_, measured)| *measured), "{device:?}");
    assert_eq!((device.len(), rings.len(), goals.len()), (22, 22, 44));
    // UNLINK and FORGET for each file, and a little for directories.
    for subject in ["ext4, build", "f2fs, build"] {
        let requests = of("rm -rf, files/s", subject, "requests");
        assert!(requests < 2.5, "{subject}: {requests}");
    }
    // Each empty server is sent what it is made for. The fewest: no GETATTR of the directory.
    let requests = |subject| of("create in one directory, files/s", subject, "requests");
    assert!(requests("empty, fewest") + 0.5 < requests("empty"), "{}", requests("empty"));
    let others = requests("ext4") / requests("empty");
    assert!((0.7..=1.3).contains(&others), "the same requests: {others}");
    // Written blocks are kept where the request has brought them, and read from the cache's memory.
    for subject in ["ext4", "f2fs"] {
        for row in ["1 MiB sequential write, MiB/s", "1 MiB cold read, MiB/s"] {
            let copied = of(row, subject, "copied");
            assert!(copied < 100.0, "{row}, {subject}: {copied} KiB copied for each MiB");
        }
    }
}
