//! SQLite on a mount, with power cuts. The device records writes and flushes. Cairn recovers the
//! state after a cut at each barrier and between barriers. SQLite must find a consistent database
//! with each acknowledged transaction.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use cairn_base::runtime::simulated::Simulated;
use cairn_block::memory::MemoryDevice;
use cairn_testkit::crash::{Cut, Volatile, read_image, write_image};
use cairn_testkit::place::Place;
use cairn_testkit::{deep, judge};
use cairn_vfs::FileSystem;
use cairn_vfs::walk::resolve;

use crate::fixture::require_mounting;
use crate::recorded::{Recorded, open};

const EXT4: &str = "ext4";

/// Commits transactions and prints a line for each. Rows are short and long, new and removed; a
/// row's contents depend on its number.
const WORK: &str = r#"
import random, sqlite3, sys
path, journal, synchronous, count = sys.argv[1:5]
db = sqlite3.connect(path, isolation_level=None)
db.execute(f"pragma journal_mode={journal}")
db.execute(f"pragma synchronous={synchronous}")
db.execute("pragma wal_autocheckpoint=16")
db.execute("create table done (number integer)")
db.execute("create table rows (number integer primary key, contents blob)")
db.execute("insert into done values (-1)")
def acknowledge(number):
    print(number, flush=True)
    sys.stdin.readline()
acknowledge(-1)
numbers = random.Random(7)
for number in range(int(count)):
    db.execute("begin immediate")
    db.execute("update done set number = ?", (number,))
    db.execute("insert into rows values (?, ?)", (number, bytes([number % 251]) * numbers.choice([10, 500, 9000, 40000])))
    db.execute("delete from rows where number = ?", (number - 8,))
    db.execute("commit")
    acknowledge(number)
"#;

/// Reads lines with a directory and the last acknowledged transaction (or "none"). Prints the
/// errors of the database in the directory.
const LOOK: &str = r#"
import sqlite3, sys
for line in sys.stdin:
    place, acknowledged = line.split()
    wrong = "nothing"
    try:
        db = sqlite3.connect(f"{place}/db")
        sound = db.execute("pragma integrity_check").fetchall()
        if sound != [("ok",)]:
            wrong = f"integrity_check: {sound}"
        elif acknowledged != "none":
            [(number,)] = db.execute("select number from done").fetchall()
            rows = db.execute("select number, contents from rows order by number").fetchall()
            kept = list(range(max(0, number - 7), number + 1))
            if number < int(acknowledged):
                wrong = f"{number} is the last of {acknowledged} that were acknowledged"
            elif [row[0] for row in rows] != kept or any(set(row[1]) != {row[0] % 251} for row in rows):
                wrong = f"{[row[0] for row in rows]} are there after {number}"
        db.close()
    except Exception as error:
        if acknowledged != "none":
            wrong = repr(error)
    print(wrong, flush=True)
"#;

fn python(program: &str) -> Command {
    let mut command = Command::new("python3");
    command.args(["-c", program]).stdout(Stdio::piped());
    command
}

/// A run of SQLite, with the moments at which it acknowledged transactions.
struct Run {
    log: cairn_testkit::crash::CrashLog,
    acknowledged: BTreeMap<u64, i64>,
}

fn run(
    dir: &Path,
    fresh: MemoryDevice,
    journal: &str,
    synchronous: &str,
    transactions: u32,
) -> Run {
    let volume = Recorded::mount(dir, fresh, &cairn_fuse::MountOptions::new("sqlite"));
    let database = volume.point.join("db");
    let mut acknowledged = BTreeMap::new();
    let mut work = python(WORK)
        .args([
            database.as_os_str(),
            journal.as_ref(),
            synchronous.as_ref(),
            transactions.to_string().as_ref(),
        ])
        .stdin(Stdio::piped())
        .spawn()
        .expect("python3 is there");
    let mut heard = work.stdin.take().unwrap();
    for line in BufReader::new(work.stdout.take().unwrap()).lines() {
        acknowledged.insert(volume.moment(), line.unwrap().parse().unwrap());
        // SQLite continues after the moment was recorded.
        heard.write_all(b"\n").unwrap();
    }
    let ended = work.wait().unwrap();
    let log = volume.finish();
    assert!(
        ended.success() && acknowledged.len() as u32 == transactions + 1,
        "{ended}: {acknowledged:?}"
    );
    Run { log, acknowledged }
}

/// Copies the database out of a volume.
fn take_out(fs: &dyn FileSystem, place: &Path) {
    for name in ["db", "db-journal", "db-wal"] {
        let Ok(found) = resolve(fs, name.as_bytes(), false) else { continue };
        let mut bytes = vec![0; usize::try_from(found.size).unwrap()];
        let read = fs.read(found.ino, 0, &mut bytes, cairn_vfs::IoFlags::empty()).unwrap();
        assert_eq!(read, bytes.len());
        fs::write(place.join(name), bytes).unwrap();
    }
}

fn search(name: &str, fresh: &MemoryDevice, clean: fn(&Path), journal: &str, synchronous: &str) {
    require_mounting();
    let dir = Place::inside(Path::new("/dev/shm"));
    let mut run = run(dir.path(), fresh.fork(), journal, synchronous, if deep() { 60 } else { 12 });
    // F2FS needs nodes that are written whole or not at all: docs/limits.md.
    if name != EXT4 {
        run.log = run.log.with_whole(judge::node_blocks_of(fresh));
    }
    let mut cuts = run.log.barrier_cuts();
    let random = run.log.random_cuts(if deep() { 300 } else { 10 }, 11);
    cuts.extend(
        random.iter().map(|cut| Cut { volatile: Volatile::Torn(cut.moment ^ 0x5eed), ..*cut }),
    );
    cuts.extend(random);
    let stride = if deep() { 1 } else { 4 };
    let mut look = python(LOOK).stdin(Stdio::piped()).spawn().unwrap();
    let mut verdicts = BufReader::new(look.stdout.take().unwrap()).lines();
    let mut questions = look.stdin.take().unwrap();
    let mut seen = 0;
    for (number, cut) in cuts.into_iter().enumerate().step_by(stride) {
        let device = Arc::new(run.log.device(cut));
        let fs = open(device.clone(), Simulated::new(1))
            .unwrap_or_else(|error| panic!("{name}, {cut}: {error}"));
        let place = tempfile::tempdir_in(dir.path()).unwrap();
        take_out(&*fs, place.path());
        fs.unmount().unwrap();
        drop(fs);
        let last =
            run.acknowledged.range(..=cut.moment).next_back().map(|(_, number)| number.to_string());
        writeln!(questions, "{} {}", place.path().display(), last.as_deref().unwrap_or("none"))
            .unwrap();
        let verdict = verdicts.next().unwrap().unwrap();
        assert_eq!(verdict, "nothing", "{name}, {journal}, synchronous={synchronous}, {cut}");
        seen += 1;
        if number % 64 == 0 {
            let image = place.path().join("image");
            write_image(&device, &image).unwrap();
            clean(&image);
        }
    }
    drop(questions);
    assert!(look.wait().unwrap().success());
    println!(
        "{name}, {journal}, synchronous={synchronous}: {} transactions, {seen} cuts",
        run.acknowledged.len()
    );
}

fn search_both(name: &str, fresh: &MemoryDevice, clean: fn(&Path)) {
    search(name, fresh, clean, "delete", "extra");
    search(name, fresh, clean, "wal", "full");
}

#[test]
fn sqlite_loses_no_transaction_on_ext4() {
    let file = tempfile::NamedTempFile::new().unwrap();
    judge::mke2fs(file.path(), 32 << 20, &["-t", "ext4", "-b", "4096", "-J", "size=4"]);
    search_both(EXT4, &read_image(file.path()).unwrap(), judge::assert_clean);
}

#[test]
fn sqlite_loses_no_transaction_on_f2fs() {
    search_both("F2FS", &judge::f2fs_in_memory(64 << 20, &[]), judge::assert_f2fs_clean);
}
