//! Changes of the options of a live mount.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cairn_testkit::judge;

use super::{SIZE, refused, remount, remounted};
use crate::fixture::{CAIRN, Volume, stats, transports};

#[test]
fn options_change_whole_or_not_at_all() {
    let mut volume = Volume::mounted(SIZE, "");
    let point = volume.root();
    remounted(
        "commit=31,noatime,async_checkpoint=20,checkpoint_clean=bail_out,nobuffered_iomap,nosuid",
        &point,
    );
    let options = |point: &Path| stats(point)["options"].clone();
    let before = options(&point);
    assert_eq!(
        (&before["commit"], &before["noatime"], &before["mount"]["suid"]),
        (&31.into(), &true.into(), &false.into())
    );
    for (list, named) in [
        ("commit=5,frob", "frob"),
        ("commit=5,threads=7", "threads"),
        ("commit=5,nowriteback_cache", "writeback_cache"),
        ("nosuid,noexec,cache=1", "cache=1"),
        ("ro,max_folio=3K", "max_folio=3K"),
        ("commit=5,async_checkpoint=100", "async_checkpoint"),
    ] {
        refused(&remount(list, &point), &[named]);
        assert_eq!(options(&point), before, "{list}");
        assert!(
            !mount_line(&point).contains("noexec") && !mount_line(&point).contains(" ro"),
            "{list}"
        );
    }
    assert!(mount_line(&point).contains("nosuid"));
    volume.unmount();
}

fn mount_line(point: &Path) -> String {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table
        .lines()
        .find(|line| line.split(' ').nth(4) == point.to_str())
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn read_only_and_back_with_files_in_use() {
    let mut volume = Volume::mounted(SIZE, "");
    let point = volume.root();
    let writer = File::create(volume.path("open")).unwrap();
    refused(&remount("ro", &point), &["open for writing"]);
    fs::write(volume.path("dirty"), vec![7; 3 << 20]).unwrap();
    drop(writer);
    for round in 0..3 {
        remounted("ro", &point);
        // The image is clean on disk although it is mounted, dirty pages of the kernel included.
        judge::assert_clean(&volume.image());
        assert!(mount_line(&point).contains(" ro"));
        assert_eq!(fs::write(volume.path("late"), "x").unwrap_err().raw_os_error(), Some(30));
        assert_eq!(fs::read(volume.path("dirty")).unwrap(), vec![7; 3 << 20]);
        remounted("rw", &point);
        fs::write(volume.path(&format!("round {round}")), "written").unwrap();
    }
    volume.unmount();
    assert!(judge::debugfs(&volume.image(), "ls /").contains("round 2"));
}

/// A file that is closed a moment later, as one that a process inherited and has not closed yet,
/// does not refuse a remount.
#[test]
fn a_file_that_is_about_to_be_closed_is_waited_for() {
    let mut volume = Volume::mounted(SIZE, "");
    let point = volume.root();
    for round in 0..4 {
        let writer = File::create(volume.path(&format!("round {round}"))).unwrap();
        let closing = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(60));
            drop(writer);
        });
        remounted("ro", &point);
        closing.join().unwrap();
        remounted("rw", &point);
    }
    volume.unmount();
}

/// mount(8) without its helper changes the kernel's side of a mount, without a message to the
/// daemon.
#[test]
fn what_others_have_changed_of_a_mount_is_changed_back() {
    let mut volume = Volume::mounted(SIZE, "");
    let point = volume.root();
    let behind =
        |options: &str| judge::run("mount", ["-i", "-o", options, point.to_str().unwrap()]);
    behind("remount,ro,nosuid");
    assert_eq!(stats(&point).pointer("/options/mount/ro"), Some(&true.into()));
    remounted("commit=9", &point);
    let line = mount_line(&point);
    assert!(line.contains(" ro,nosuid"), "what is not named stays: {line}");
    remounted("rw", &point);
    fs::write(volume.path("file"), "written").unwrap();
    assert!(mount_line(&point).contains("nosuid"));
    remounted("ro", &point);
    behind("remount,rw");
    remounted("ro", &point);
    let refused_by_kernel = fs::write(volume.path("late"), "x").unwrap_err();
    assert_eq!(refused_by_kernel.raw_os_error(), Some(30));
    assert!(mount_line(&point).contains(" ro,"));
    behind("remount,rw");
    remounted("rw", &point);
    fs::write(volume.path("last"), "written").unwrap();
    // The read-only flag of a copy is its own; the daemon cannot change it.
    let copy = volume.outside("copy");
    fs::create_dir(&copy).unwrap();
    judge::run("mount", ["--bind".as_ref(), point.as_os_str(), copy.as_os_str()]);
    judge::run(
        "mount",
        ["-i".as_ref(), "-o".as_ref(), "remount,bind,ro".as_ref(), copy.as_os_str()],
    );
    let output = remount("rw", &copy);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("mount -i -o remount,bind,rw"), "{told}");
    judge::run("umount", [&copy]);
    volume.unmount();
}

#[test]
fn a_word_that_has_no_effect_is_told_by_remount_as_by_mount() {
    for (mut volume, word) in [
        (Volume::mounted(SIZE, ""), "inode_readahead_blks=32"),
        (Volume::f2fs(SIZE, ""), "extent_cache"),
    ] {
        for word in ["lazytime", word] {
            let output = remount(&format!("{word},noatime"), &volume.root());
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && told.lines().count() == 1, "{told}");
            assert!(told.contains(&format!("option `{word}` has no effect")), "{told}");
        }
        volume.unmount();
    }
}

/// The image, the mount point, and a second one; the program is `$0`.
const WITHOUT_PROC: &str = r#"
set -e
"$0" mount -o ro "$1" "$2"
"$0" mount -o ro "$1" "$3"
# From here on neither daemon has it.
mount -t tmpfs none /proc
with_proc() { unshare --mount sh -c 'umount /proc && exec "$@"' sh "$@"; }
if with_proc "$0" remount -o rw "$2"; then echo "it was turned writable beside a reader"; fi
cat "$2/file"
mv "$1" "$1.moved"
if with_proc "$0" remount -o rw "$2"; then echo "it was turned writable under another name"; fi
cat "$2/file"
mv "$1.moved" "$1"
umount /proc
"$0" umount "$3"
mount -t tmpfs none /proc
with_proc "$0" remount -o rw "$2"
echo written >> "$2/file"
umount /proc
"$0" umount "$2"
"#;

/// A daemon whose `/proc` has gone (a container, a chroot) is asked to turn a volume writable that
/// another process reads: it must continue to read, and turn the volume writable once the other
/// process has ended.
#[test]
fn a_refused_remount_leaves_the_mount_as_it_was_without_proc() {
    let mut volume = Volume::mounted(32 << 20, "");
    fs::write(volume.path("file"), "contents\n").unwrap();
    volume.unmount();
    let second = volume.outside("second");
    fs::create_dir(&second).unwrap();
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", &[judge::FORGET_MOUNTS, WITHOUT_PROC].concat(), CAIRN])
        .args([&volume.image(), &volume.root(), &second]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "contents\ncontents\n", "{said}");
    assert!(
        output.status.success() && said.contains("in use") && said.contains("mount /proc"),
        "{said}"
    );
    volume.judge();
    assert!(judge::debugfs(&volume.image(), "cat /file").contains("written"));
}

#[test]
fn a_mount_that_was_made_read_only_is_recovered_when_it_is_turned_writable() {
    for mut volume in [Volume::mounted(SIZE, ""), Volume::f2fs(SIZE, "")] {
        let point = volume.root();
        let file = File::create(volume.path("synced")).unwrap();
        fs::write(volume.path("synced"), vec![7; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        drop(file);
        volume.kill();
        volume.clear();

        volume.mount("ro");
        let mut reader = File::open(volume.path("synced")).unwrap();
        let mut first = vec![0; 1000];
        reader.read_exact(&mut first).unwrap();
        assert_eq!(fs::write(volume.path("early"), "x").unwrap_err().raw_os_error(), Some(30));
        remounted("rw", &point);
        assert!(!mount_line(&point).contains(" ro"));
        fs::remove_file(volume.path("synced")).unwrap();
        fs::write(volume.path("late"), vec![8; 1 << 20]).unwrap();
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        assert!(first == [7; 1000] && rest == vec![7; (1 << 20) - 1000]);
        drop(reader);
        assert_eq!(fs::read(volume.path("late")).unwrap(), vec![8; 1 << 20]);
        volume.unmount();
    }
}

#[test]
fn every_transition_while_threads_write() {
    for transport in transports() {
        every_transition(&mut Volume::mounted(SIZE, transport));
    }
}

fn every_transition(volume: &mut Volume) {
    const LISTS: [&str; 10] = [
        "async_checkpoint",
        "checkpoint_clean=scan",
        "nobuffered_iomap,max_folio=4K",
        "async_checkpoint=90,commit=1",
        "cache=8M",
        "noatime,nodev",
        "checkpoint_clean=bail_out,buffered_iomap",
        "max_folio=2M,cache=128M,relatime,dev",
        "noasync_checkpoint,commit=5",
        "checkpoint_clean=counted",
    ];
    let point = volume.root();
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _stops = Stop(&stop);
        for thread in 0..4_u8 {
            let (volume, stop, done) = (&*volume, &stop, &done);
            scope.spawn(move || {
                for round in 0_u32.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let path = volume.path(&format!("{thread}-{}", round % 9));
                    fs::write(&path, vec![thread; 20_000 + round as usize % 7 * 4096]).unwrap();
                    if round % 4 == 0 {
                        File::open(&path).unwrap().sync_all().unwrap();
                    }
                    assert!(fs::read(&path).unwrap().iter().all(|byte| *byte == thread));
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..if cairn_testkit::deep() { 20 } else { 2 } {
            for list in LISTS {
                remounted(list, &point);
                let before = done.load(Ordering::Relaxed);
                while done.load(Ordering::Relaxed) < before + 4 {
                    std::thread::yield_now();
                }
            }
        }
    });
    assert_eq!(stats(&point)["log"]["errors"], 0);
    volume.unmount();
}

/// Ends the threads of a test also when it fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
