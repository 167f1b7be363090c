//! The control channel of live mounts: reports, changes of options, freezing, while programs use
//! the mounts.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cairn_testkit::judge;
use serde_json::Value;

use crate::fixture::{CAIRN, Volume, stats, transports};

const SIZE: u64 = 128 << 20;

fn cairn(arguments: &[&str], point: &Path) -> Output {
    Command::new(CAIRN).args(arguments).arg(point).stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn refused(output: &Output, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.lines().count() == 1, "{}: {said}", output.status);
    assert!(words.iter().all(|word| said.contains(word)), "{words:?} in {said}");
}

fn remount(options: &str, point: &Path) -> Output {
    cairn(&["remount", "-o", options], point)
}

#[track_caller]
fn remounted(options: &str, point: &Path) {
    let output = remount(options, point);
    assert!(output.status.success(), "{options}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The control socket of a mount.
fn socket(point: &Path) -> PathBuf {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.split(' ').nth(4) == point.to_str()).unwrap();
    let device = line.split(' ').nth(2).unwrap().replace(':', "-");
    Path::new("/run/cairn").join(device + ".sock")
}

/// The names in backticks of a section's row in docs/control.md.
fn documented_fields(section: &str) -> Vec<&'static str> {
    let row = format!("| `{section}` | ");
    let page = include_str!("../../../../docs/control.md");
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
        while !remount("ro", &point).status.success() {
            // Closing a file ends with a message that is on its way.
            std::thread::yield_now();
        }
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
    command.args(["--mount", "sh", "-c", WITHOUT_PROC, CAIRN]).args([
        &volume.image(),
        &volume.root(),
        &second,
    ]);
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

#[test]
fn others_are_turned_away() {
    let mut volume = Volume::mounted(SIZE, "");
    let place = cairn_testkit::place::Place::from(
        tempfile::Builder::new().prefix("cairn-user-").tempdir().unwrap(),
    );
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = place.path().join("cairn");
    judge::copy_program(Path::new(CAIRN), &program);
    stats(&volume.root());
    let as_user = |arguments: &[&str]| {
        let mut command = judge::command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(&program);
        command.args(arguments).arg(volume.root()).output().unwrap()
    };
    refused(&as_user(&["stats"]), &["mounted by user 0", "as root"]);
    refused(&as_user(&["remount", "-o", "noatime"]), &["mounted by user 0"]);
    refused(&as_user(&["umount"]), &["mounted by user 0: run as that user or as root"]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(Path::new("/run/cairn")), mode(&socket(&volume.root()))), (0o700, 0o600));
    volume.unmount();
}

/// As with umount(8), the source of a mount stands for it; and a mount point is no image.
#[test]
fn the_image_stands_for_its_mount() {
    let mut volume = Volume::mounted(SIZE, "");
    let (image, root) = (volume.image(), volume.root());
    for words in [&["stats"][..], &["remount", "-o", "noatime"], &["freeze"], &["thaw"]] {
        let output = cairn(words, &image);
        assert!(output.status.success(), "{words:?}: {output:?}");
    }
    let mounted = format!("{}: {} is mounted there", root.display(), image.display());
    for command in ["ls", "df"] {
        refused(&cairn(&[command], &root), &[&*mounted]);
    }
    let held = format!("in use: mounted on {} (process ", root.display());
    refused(&cairn(&["ls"], &image), &[&*held]);
    let output = cairn(&["umount"], &image);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(volume.await_end(), "");
}

#[test]
fn paths_that_are_no_mounts_of_ours_are_told_apart() {
    let mut volume = Volume::mounted(SIZE, "");
    refused(&cairn(&["stats"], Path::new("/proc")), &["/proc", "not by cairn"]);
    refused(&cairn(&["stats"], Path::new("/usr")), &["/usr", "nothing is mounted here"]);
    refused(&cairn(&["stats"], Path::new("/no/such")), &["/no/such"]);
    fs::create_dir(volume.path("sub")).unwrap();
    refused(&cairn(&["stats"], &volume.path("sub")), &["nothing is mounted here"]);
    // A symbolic link to the mount point stands for it, too.
    let link = volume.outside("link");
    std::os::unix::fs::symlink(volume.root(), &link).unwrap();
    assert_eq!(stats(&link)["state"]["mode"], "rw");
    volume.unmount();
}

#[test]
fn a_killed_daemon_leaves_a_clear_message_and_a_socket_that_is_replaced() {
    let mut volume = Volume::mounted(SIZE, "");
    stats(&volume.root());
    volume.kill();
    refused(&cairn(&["stats"], &volume.root()), &["is gone", "cairn umount -l"]);
    refused(&remount("noatime", &volume.root()), &["is gone"]);
    volume.clear();
    volume.mount("");
    assert_eq!(stats(&volume.root())["state"]["mode"], "rw");
    volume.unmount();
}

#[test]
fn a_second_daemon_on_the_same_mount_point_is_refused() {
    let mut volume = Volume::mounted(SIZE, "");
    let other = Volume::make(SIZE, &[]);
    let output =
        Command::new(CAIRN).arg("mount").arg(other.image()).arg(volume.root()).output().unwrap();
    refused(&output, &["in use"]);
    assert_eq!(stats(&volume.root())["mount"]["image"].as_str(), volume.image().to_str());
    volume.unmount();
}

#[test]
fn clients_that_say_nothing_do_not_delay_the_unmount() {
    let mut volume = Volume::mounted(SIZE, "");
    // The daemon listens.
    stats(&volume.root());
    let path = socket(&volume.root());
    let silent: Vec<UnixStream> = (0..10).map(|_| UnixStream::connect(&path).unwrap()).collect();
    assert!(cairn(&["stats"], &volume.root()).status.success());
    volume.unmount();
    drop(silent);
}

/// Run in a mount namespace of its own, where an empty `/sbin` gets the helper: the installed
/// program, the image, the mount point.
const MOUNT8: &str = r#"
set -e
mount -t tmpfs none "$(readlink -f /sbin)"
ln -s "$0" /sbin/mount.fuse.cairn
mount -t fuse.cairn "$1" "$2" -o noatime,commit=11
echo hello > "$2/file"
grep -q " $2 .*noatime.* fuse.cairn" /proc/self/mountinfo
"$0" stats "$2" | grep -q "commit  *11 s"
mount -o remount,ro "$2"
if echo late > "$2/late"; then echo "still writable"; fi 2>/dev/null
"$0" stats "$2" | grep -q "mode  *ro"
mount -o remount,rw "$2"
cat "$2/file"
echo more >> "$2/file"
"$0" umount "$2"
ln -s "$0" /sbin/mount.cairn
mount -t cairn "$1" "$2"
grep -q " $2 .* fuse.cairn" /proc/self/mountinfo
"$0" umount "$2"
# mount(8) passes on the whole type.
mount -t cairn.ext4 "$1" "$2"
"$0" umount "$2"
if mount -t cairn.f2fs "$1" "$2" 2>/dev/null; then echo "ext4 was mounted as f2fs"; fi
"#;

#[test]
fn an_installed_cairn_serves_mount8() {
    let volume = Volume::make(SIZE, &[]);
    let root = volume.outside("root");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install");
    let output = Command::new(script)
        .arg(CAIRN)
        .env("DESTDIR", &root)
        .env("PREFIX", "/usr")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for file in [
        "usr/bin/cairn",
        "usr/share/man/man1/cairn.1",
        "usr/share/man/man1/cairn-stats.1",
        "usr/share/bash-completion/completions/cairn",
        "usr/share/zsh/site-functions/_cairn",
        "usr/share/fish/vendor_completions.d/cairn.fish",
    ] {
        assert!(fs::metadata(root.join(file)).unwrap().len() > 100, "{file}");
    }
    for helper in ["sbin/mount.fuse.cairn", "sbin/mount.cairn"] {
        assert_eq!(fs::read_link(root.join(helper)).unwrap(), Path::new("/usr/bin/cairn"));
    }
    let mut command = judge::command("unshare");
    command.args(["--mount", "sh", "-c", MOUNT8]).args([
        root.join("usr/bin/cairn"),
        volume.image(),
        volume.root(),
    ]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said == "hello\n", "{}: {said}", output.status);
    judge::assert_clean(&volume.image());
}

/// More callers than there are threads for requests that wait for the disk.
const WRITERS: u64 = 60;

#[test]
fn a_frozen_mount_is_copied_and_read_while_writers_wait() {
    frozen(Volume::mounted(SIZE, ""), judge::assert_clean);
    frozen(Volume::f2fs(SIZE, ""), judge::assert_f2fs_clean);
}

fn frozen(mut volume: Volume, assert_clean: fn(&Path)) {
    let point = volume.root();
    let said = |arguments: &[&str]| {
        let output = cairn(arguments, &point);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    refused(&cairn(&["thaw"], &point), &["not frozen"]);
    let bytes: Vec<u8> = (0..3_u32 << 20).map(|at| (at / 4096) as u8).collect();
    fs::write(volume.path("kept"), &bytes).unwrap();
    let path = |writer: u64| volume.path(&format!("file {writer}"));
    for writer in 0..WRITERS {
        fs::write(path(writer), "").unwrap();
    }
    said(&["freeze"]);
    assert_eq!(stats(&point).pointer("/state/frozen"), Some(&Value::Bool(true)));
    let copy = volume.outside("copy");
    fs::copy(volume.image(), &copy).unwrap();
    assert_clean(&copy);
    let got = Command::new(CAIRN).args(["cat"]).arg(&copy).arg("kept").output().unwrap();
    assert!(
        got.stdout == bytes,
        "what was written before is in the copy: {}",
        String::from_utf8_lossy(&got.stderr)
    );
    refused(&cairn(&["freeze"], &point), &["frozen", "thaw it first"]);
    refused(&remount("noatime", &point), &["frozen", "thaw it first"]);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let path = path(writer);
                scope.spawn(move || fs::set_permissions(path, fs::Permissions::from_mode(0o751)))
            })
            .collect();
        // Until all of them wait in the daemon.
        while stats(&point).pointer("/fuse/queue_now").and_then(Value::as_u64).unwrap() < WRITERS {
            std::thread::yield_now();
        }
        for look in 0..100 {
            assert!(fs::metadata(volume.path(&format!("none{look}"))).is_err());
        }
        assert!(fs::read(volume.path("kept")).unwrap() == bytes);
        assert!(
            fs::read(volume.image()).unwrap() == fs::read(&copy).unwrap(),
            "written while frozen"
        );
        said(&["thaw"]);
        for writer in writers {
            writer.join().unwrap().unwrap();
        }
    });
    for writer in 0..WRITERS {
        assert_eq!(fs::metadata(path(writer)).unwrap().permissions().mode() & 0o777, 0o751);
    }
    said(&["freeze"]);
    volume.unmount();
    volume.mount_again();
    said(&["freeze"]);
    volume.terminate();
}

/// An option that no mount takes is a usage error, at mount and at remount. One that this mount
/// cannot change now is a failure.
#[test]
fn a_wrong_option_has_one_status() {
    for mut volume in [Volume::mounted(SIZE, ""), Volume::f2fs(SIZE, "")] {
        let other = volume.outside("other.img");
        fs::copy(volume.image(), &other).unwrap();
        let point = volume.outside("other");
        fs::create_dir(&point).unwrap();
        for (option, why) in [
            ("threads=0", "give a number from 1 to 64"),
            ("spin=x", "0 to 10000"),
            ("transport=x", "give auto, ring or dev"),
            ("noexec=1", "takes no value"),
            ("cache=1", "cache=1"),
            ("frob", "unknown option `frob`"),
        ] {
            let output = remount(option, &volume.root());
            refused(&output, &[why]);
            assert_eq!(output.status.code(), Some(2), "{option}");
            let output = Command::new(CAIRN)
                .args(["mount", "-o", option])
                .args([&other, &point])
                .output()
                .unwrap();
            refused(&output, &[why]);
            assert_eq!(output.status.code(), Some(2), "{option}");
        }
        assert_eq!(remount("threads=3", &volume.root()).status.code(), Some(1));
        volume.unmount();
    }
}

/// An image on a read-only filesystem is mounted read-only, as mount(8) does.
#[test]
fn an_image_on_a_read_only_filesystem_is_mounted_read_only_and_says_why() {
    for mut volume in [Volume::mounted(SIZE, ""), Volume::f2fs(SIZE, "")] {
        fs::write(volume.path("file"), "to be read").unwrap();
        volume.unmount();
        let host = volume.outside("host");
        fs::create_dir(&host).unwrap();
        judge::run("mount", ["-t", "tmpfs", "host", host.to_str().unwrap()]);
        let image = host.join("image");
        judge::run(
            "cp",
            ["--sparse=always".as_ref(), volume.image().as_os_str(), image.as_os_str()],
        );
        judge::run("mount", ["-o", "remount,ro", host.to_str().unwrap()]);
        let mount = || {
            let mut command = Command::new(CAIRN);
            command.args(["mount", "-o", "rw"]).args([&image, &volume.root()]).output().unwrap()
        };
        let output = mount();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.lines().count() == 1, "{said}");
        assert!(
            said.contains("mounted read-only: the filesystem that the image lies on"),
            "{said}"
        );
        assert_eq!(fs::read(volume.path("file")).unwrap(), b"to be read");
        assert_eq!(fs::write(volume.path("new"), "x").unwrap_err().raw_os_error(), Some(30));
        refused(&remount("rw", &volume.root()), &["rw is not possible", "read-only"]);
        volume.detach();
        // When the filesystem is writable again, the mount can be remounted read-write.
        assert!(mount().status.success());
        judge::run("mount", ["-o", "remount,rw", host.to_str().unwrap()]);
        remounted("rw", &volume.root());
        fs::write(volume.path("new"), "written").unwrap();
        volume.detach();
        judge::run("umount", [&host]);
    }
}

/// `-t` names the format of the image, as for mount(8): another format is refused.
#[test]
fn a_type_is_checked_against_what_the_image_holds() {
    let mut volume = Volume::f2fs(SIZE, "");
    volume.unmount();
    let mount = |kind: &str| {
        let mut command = Command::new(CAIRN);
        command.args(["mount", "-t", kind]).args([volume.image(), volume.root()]).output().unwrap()
    };
    for (kind, why) in [("ext4", "it contains f2fs, not ext4"), ("xfs", "ext4, ext3, ext2, f2fs")] {
        let output = mount(kind);
        refused(&output, &[why]);
        assert_eq!(output.status.code(), Some(2));
    }
    for kind in ["f2fs", "auto", "fuse.cairn"] {
        let output = mount(kind);
        assert!(output.status.success(), "{kind}: {output:?}");
        volume.detach();
    }
}

/// The log names the format, the mount point and the options, not the names of types.
#[test]
fn the_log_names_the_format_and_the_options_of_a_mount() {
    let volume = Volume::make(SIZE, &[]);
    let mut command = Command::new(CAIRN);
    command.env("CAIRN_LOG", "info").args(["mount", "-o", "noexec,commit=9"]);
    let output = command.args([volume.image(), volume.root()]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    for words in ["ext4, to be mounted on", "exec no,", "the volume: commit=9"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains("MountOptions"), "{said}");
    volume.detach();
    let mut command = Command::new(CAIRN);
    command.env("CAIRN_LOG", "bogus").arg("mount").args([volume.image(), volume.root()]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.lines().count() == 1, "{said}");
    assert!(said.contains("CAIRN_LOG=bogus") && said.contains("debug or trace"), "{said}");
    volume.detach();
}

/// A volume that cannot be written is reported at the mount, not at the first write.
#[test]
fn what_can_only_be_read_is_mounted_read_only_and_says_why() {
    let mut volume = Volume::f2fs(SIZE, "");
    volume.unmount();
    judge::mkfs_f2fs(&volume.image(), SIZE, &["-O", "encrypt"]);
    let (image, point) = (volume.image(), volume.root());
    let output = Command::new(CAIRN).arg("mount").args([&image, &point]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.lines().count() == 1, "{said}");
    assert!(said.contains("mounted read-only") && said.contains("encrypt"), "{said}");
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = table.lines().find(|line| line.contains(point.to_str().unwrap())).unwrap();
    assert!(line.contains(" ro,"), "{line}");
    assert_eq!(fs::write(volume.path("x"), "").unwrap_err().raw_os_error(), Some(30));
    assert!(Command::new(CAIRN).arg("umount").arg(&point).output().unwrap().status.success());
    // A mount with ro needs no warning.
    let output =
        Command::new(CAIRN).args(["mount", "-o", "ro"]).args([&image, &point]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty());
    assert!(Command::new(CAIRN).arg("umount").arg(&point).output().unwrap().status.success());
    let output =
        Command::new(CAIRN).arg("mkdir").args([image.as_os_str(), "/x".as_ref()]).output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", String::from_utf8_lossy(&output.stderr));
}
