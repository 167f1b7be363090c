//! A mount of a volume in an object store. The store is a directory.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cairn::{BlockDevice, ImageSpec};
use cairn_block::BlockDeviceExt;
use cairn_testkit::judge;
use serde_json::Value;

use crate::fixture::{CAIRN, Volume, is_mounted, stats};

const SIZE: &str = "64M";
const WRITERS: u64 = 4;

fn run(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(CAIRN).args(arguments).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[track_caller]
fn cairn(arguments: &[&str]) -> String {
    let (status, stdout, stderr) = run(arguments);
    assert!(status == 0, "{arguments:?}: {stderr}");
    stdout
}

/// A place for a mount, the address of a new volume beside it, and the mount point.
pub fn made() -> (Volume, String, String) {
    made_as("ext4")
}

fn made_as(format: &str) -> (Volume, String, String) {
    let volume = Volume::make(2 << 20, &[]);
    let address = format!("file-store://{}@disk", volume.outside("pool").display());
    cairn(&["mkfs", "-t", format, "--size", SIZE, &address]);
    let point = volume.root().to_str().unwrap().to_owned();
    (volume, address, point)
}

/// A daemon in the foreground.
pub struct Daemon(Child);

impl Daemon {
    pub fn start(address: &str, point: &str) -> Self {
        let mut command = Command::new(CAIRN);
        command.args(["mount", "-f", address, point]).stdin(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let started = Instant::now();
        while !is_mounted(Path::new(point)) {
            assert!(child.try_wait().unwrap().is_none(), "cairn mount has ended");
            assert!(started.elapsed() < Duration::from_secs(60), "it does not mount");
            std::thread::sleep(Duration::from_millis(5));
        }
        Self(child)
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What e2fsck says of the assembled image.
fn assert_clean(volume: &Volume, address: &str) {
    assert_clean_by(judge::assert_clean, volume, address);
}

fn assert_clean_by(judge: fn(&Path), volume: &Volume, address: &str) {
    const PIECE: usize = 1 << 20;
    let image = ImageSpec::parse(address.as_ref()).unwrap();
    let device = cairn::open_device(&image, &[], false).unwrap();
    let raw = volume.outside("raw");
    let mut file = File::create(&raw).unwrap();
    for at in (0..device.geometry().size).step_by(PIECE) {
        file.write_all(&device.read_at(at, PIECE).unwrap()).unwrap();
    }
    judge(&raw);
}

/// Writes files until the mount dies. Returns how many were acknowledged.
fn write_files(root: &Path, writer: u64, done: &AtomicU64) -> u64 {
    for serial in 0.. {
        let write = || -> io::Result<()> {
            let mut file = File::create_new(root.join(format!("{writer}-{serial}")))?;
            file.write_all(&contents(writer, serial))?;
            file.sync_all()
        };
        if write().is_err() {
            return serial;
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
    0
}

fn contents(writer: u64, serial: u64) -> Vec<u8> {
    let bytes = (writer * 1000 + serial).to_le_bytes();
    bytes.iter().copied().cycle().take(20_000 + serial as usize).collect()
}

/// Kills a daemon while files are written and synced. Returns what was acknowledged of each writer.
fn killed_under_load(daemon: &mut Daemon, root: &Path) -> Vec<u64> {
    let done = AtomicU64::new(0);
    let acknowledged: Vec<u64> = std::thread::scope(|scope| {
        let done = &done;
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || write_files(root, writer, done)))
            .collect();
        while done.load(Ordering::Relaxed) < 150 {
            std::thread::sleep(Duration::from_millis(1));
        }
        daemon.kill();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    assert!(acknowledged.iter().sum::<u64>() >= 150);
    acknowledged
}

#[track_caller]
fn assert_all_there(root: &Path, acknowledged: &[u64]) {
    for (writer, files) in (0..).zip(acknowledged) {
        for serial in 0..*files {
            let read = fs::read(root.join(format!("{writer}-{serial}"))).unwrap();
            assert!(read == contents(writer, serial), "{writer}-{serial} of {files}");
        }
    }
}

#[test]
fn a_killed_daemon_loses_nothing_that_was_flushed() {
    let (volume, address, point) = made();
    let mut daemon = Daemon::start(&address, &point);
    let acknowledged = killed_under_load(&mut daemon, &volume.root());
    cairn(&["umount", "-l", &point]);
    // The writer ended on this machine, so nothing has to be said for the next one.
    let _daemon = Daemon::start(&address, &point);
    assert_all_there(&volume.root(), &acknowledged);
    cairn(&["umount", &point]);
    assert_clean(&volume, &address);
}

#[test]
fn a_killed_daemon_loses_nothing_that_was_flushed_to_a_local_log() {
    for format in ["ext4", "f2fs"] {
        let judge: fn(&Path) = match format {
            "ext4" => judge::assert_clean,
            _ => judge::assert_f2fs_clean,
        };
        let (volume, address, point) = made_as(format);
        let file = volume.outside("flushes");
        let logged = format!("{address}?log={}", file.display());
        let mut daemon = Daemon::start(&logged, &point);
        let acknowledged = killed_under_load(&mut daemon, &volume.root());
        cairn(&["umount", "-l", &point]);
        // Without the log, something may be missing. A log in the wrong place is not made.
        let wrong = volume.outside("wrong");
        let elsewhere = format!("{address}?log={}", wrong.display());
        for command in [&["ls", &address][..], &["ls", &elsewhere], &["mkdir", &elsewhere, "/a"]] {
            let (status, _, said) = run(command);
            assert!(status == 6 && said.contains("may have flushed writes"), "{status}: {said}");
        }
        assert!(!wrong.exists());
        // What an interrupted copy leaves is refused.
        let cut = volume.outside("cut");
        fs::copy(&file, &cut).unwrap();
        File::options().write(true).open(&cut).unwrap().set_len(1 << 20).unwrap();
        let (status, _, said) = run(&["ls", &format!("{address}?log={}", cut.display())]);
        assert!(status != 0 && said.contains("is damaged: it has 1048576 bytes"), "{said}");
        let _daemon = Daemon::start(&logged, &point);
        assert_all_there(&volume.root(), &acknowledged);
        let counters = &stats(Path::new(&point))["object_volume"];
        assert_eq!(counters["log_in_use"], true, "{counters}");
        cairn(&["umount", &point]);
        assert_clean_by(judge, &volume, &address);
        assert_eq!(fs::metadata(&file).unwrap().len(), 0);
    }
}

/// Flushes that a full disk does not take, and those after somebody has emptied the log, go to the
/// store, and that is told.
#[test]
fn a_local_log_on_a_full_disk_or_emptied_is_in_nobodys_way() {
    let (volume, address, point) = made();
    let small = volume.outside("small");
    fs::create_dir(&small).unwrap();
    let small = small.to_str().unwrap();
    // Its first block has room, and the others have none.
    judge::run("mount", ["-t", "tmpfs", "-o", "size=4k", "none", small]);
    let file = format!("{small}/flushes");
    let logged = format!("{address}?log={file}");
    let (status, _, said) = run(&["touch", &logged, "/x"]);
    assert!(status == 1 && said.contains("no space left"), "{status}: {said}");
    assert!(!Path::new(&file).exists());
    judge::run("mount", ["-o", "remount,size=256k", small]);
    let mut daemon = Daemon::start(&logged, &point);
    let counters = || stats(Path::new(&point));
    let mut sizes = Vec::new();
    let mut write = |size: usize| {
        let mut file = File::create_new(volume.path(&sizes.len().to_string())).unwrap();
        file.write_all(&vec![size as u8; size]).unwrap();
        file.sync_all().unwrap();
        sizes.push(size);
    };
    (1..30).for_each(|number| write(number * 1000));
    write(300_000);
    let found = counters();
    let part = &found["object_volume"];
    assert!(part["log_fallbacks"].as_u64() > Some(0), "{part}");
    assert_eq!(part["log_in_use"], true, "{part}");
    assert!(part["log_error"].as_str().unwrap().contains("no space left"), "{part}");
    let told = found["log"]["messages"].to_string();
    assert_eq!(told.matches("the local log takes no flushes").count(), 1, "{told}");
    // Emptied by a shell.
    File::create(&file).unwrap();
    (1..5).for_each(|number| write(number * 1000));
    let found = counters();
    let part = &found["object_volume"];
    assert!(part["log_error"].as_str().unwrap().contains("has cut the file short"), "{part}");
    assert_eq!(found["object_volume"]["log_in_use"], false, "{found}");
    let told = found["log"]["messages"].to_string();
    assert_eq!(told.matches("the local log is out of use").count(), 1, "{told}");
    let metrics = cairn(&["stats", "--prometheus", &point]);
    assert!(metrics.contains("cairn_object_log_in_use{"), "{metrics}");
    daemon.kill();
    cairn(&["umount", "-l", &point]);
    // The store has everything, but nobody can know that without the log.
    let (status, _, said) = run(&["ls", &logged]);
    assert!(status == 6 && said.contains("&discard-log"), "{status}: {said}");
    let _daemon = Daemon::start(&format!("{logged}&discard-log"), &point);
    for (number, size) in sizes.iter().enumerate() {
        let read = fs::read(volume.path(&number.to_string())).unwrap();
        assert!(read == vec![*size as u8; *size], "file {number}");
    }
    cairn(&["umount", &point]);
    assert_clean(&volume, &address);
}

#[test]
fn an_object_volume_is_mounted_changed_and_unmounted_by_its_address() {
    let (volume, address, point) = made();
    let cached = format!("{address}?cache={}&memory=8M", volume.outside("cache").display());
    cairn(&["mount", &cached, &point]);
    fs::write(volume.path("file"), vec![7; 1_000_000]).unwrap();
    File::open(volume.path("file")).unwrap().sync_all().unwrap();
    assert!(cairn(&["stats", "--json", &address]).contains("journal"));
    cairn(&["remount", "-o", "commit=9", &address]);
    for arguments in [&["rm", &address, "file"][..], &["ls", &address], &["mount", &address, "/"]] {
        let (status, _, said) = run(arguments);
        assert!(matches!(status, 1 | 6), "{arguments:?}: {status}: {said}");
    }
    cairn(&["check", &point]);
    // What is flushed is in a snapshot, while the mount goes on.
    cairn(&["snapshot", &address, "now"]);
    fs::remove_file(volume.path("file")).unwrap();
    cairn(&["umount", &address]);
    assert!(!is_mounted(Path::new(&point)));
    // Another machine, which cannot see that the daemon has ended, may open it.
    let listed: Value =
        serde_json::from_str(&cairn(&["info", "--json", "--pool", &address])).unwrap();
    let mut volumes = listed["volumes"].as_array().unwrap().iter();
    assert!(volumes.all(|volume| volume["writer"].is_null()), "{listed}");
    assert_eq!(run(&["cat", &address, "/file"]).0, 1);
    let now = address.replace("@disk", "@now");
    assert_eq!(cairn(&["cat", &now, "/file"]).len(), 1_000_000);
    let (status, _, said) = run(&["mount", &now, &point]);
    assert!(status == 0 && said.contains("mounted read-only: now is a snapshot\n"), "{said}");
    cairn(&["umount", &point]);
    assert_clean(&volume, &address);
}

/// The check reads what is flushed beside the daemon, which has the log locked.
#[test]
fn a_mount_with_a_local_log_is_checked() {
    for format in ["ext4", "f2fs"] {
        let (volume, address, point) = made_as(format);
        let log = volume.outside("flushes");
        cairn(&["mount", &format!("{address}?log={}", log.display()), &point]);
        let writes = |from: usize| {
            for number in from..from + 40 {
                let mut file = File::create_new(volume.path(&format!("{number}"))).unwrap();
                file.write_all(&vec![number as u8; 500 * number]).unwrap();
                file.sync_all().unwrap();
            }
        };
        for round in 0..3 {
            writes(round * 40);
            let said = cairn(&["check", &point]);
            assert!(said.contains(": clean"), "{said}");
            // What was written before the freeze was read.
            let checked: Value =
                serde_json::from_str(&cairn(&["check", "--json", &point])).unwrap();
            assert!(checked["files"].as_u64() >= Some((round as u64 + 1) * 40), "{checked}");
        }
        let counters = &stats(Path::new(&point))["object_volume"];
        assert_eq!(counters["log_in_use"], true, "{counters}");
        cairn(&["umount", &point]);
    }
}

#[test]
fn a_mount_that_is_taken_over_stops_and_says_why() {
    let (volume, address, point) = made();
    let _daemon = Daemon::start(&address, &point);
    fs::write(volume.path("flushed"), "flushed").unwrap();
    File::open(volume.path("flushed")).unwrap().sync_all().unwrap();
    // A process of this machine that runs is seen. In another namespace it is not.
    let over = format!("{address}?take-over");
    let (status, _, said) = run(&["touch", &over, "/second"]);
    assert!(status == 6 && said.contains("and runs: unmount it"), "{status}: {said}");
    judge::run("unshare", ["--pid", "--fork", CAIRN, "touch", &over, "/second"]);
    let late = File::create(volume.path("late")).and_then(|file| file.sync_all());
    assert!(late.is_err(), "it was acknowledged");
    let refused = File::create(volume.path("later")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::ROFS.raw_os_error()), "{refused}");
    let told = stats(Path::new(&point));
    assert!(told.to_string().contains("another writer has taken over"), "{told}");
    let (_, _, said) = run(&["umount", &point]);
    assert!(said.contains("another writer has taken over"), "{said}");
    assert!(!said.contains("mount it again"), "it would not have what was lost: {said}");
    let listed = cairn(&["ls", &address]);
    assert!(listed.contains("flushed") && listed.contains("second"), "{listed}");
    assert!(!listed.contains("late"), "{listed}");
    assert_clean(&volume, &address);
}
