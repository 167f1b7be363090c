//! Mounts on block devices: the kernel claims the device, sync(2) reaches the volume, and umount(8)
//! returns when the volume is closed.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use cairn_block::file::{DirectFile, OpenOptions};
use cairn_block::{Batch, BlockDevice, ErrorKind, IoBuf, Request};
use cairn_testkit::judge::{self, LoopDevice};

use crate::fixture::{CAIRN, Volume, is_mounted, stats};

const SIZE: u64 = 64 << 20;

fn run(program: &str, arguments: &[&str]) -> Output {
    judge::command(program).args(arguments).stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn done(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Type and source of what is mounted there.
fn mounted(point: &Path) -> (String, String) {
    let found = run("findmnt", &["-n", "-o", "FSTYPE,SOURCE", text(point)]);
    let found = String::from_utf8(found.stdout).unwrap();
    let (kind, source) = found.trim().split_once(char::is_whitespace).expect("a mount");
    (kind.to_owned(), source.trim().to_owned())
}

/// `umount(8)`, again while a process that another test starts has copies of open files. Returns
/// at the end of the system call.
fn umount(point: &Path) {
    let started = Instant::now();
    while !run("umount", &[text(point)]).status.success() {
        assert!(started.elapsed() < Duration::from_secs(60), "{} stays busy", point.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Mounts, again while the last mount's process has the device: of a mount that is not of type
/// fuseblk, the system call does not wait for its end.
fn mount_again(arguments: &[&str]) -> Output {
    let started = Instant::now();
    loop {
        let output = run(CAIRN, arguments);
        let is_used = String::from_utf8_lossy(&output.stderr).contains("in use by");
        if !is_used || started.elapsed() > Duration::from_secs(60) {
            return output;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_device_that_cannot_be_written_is_mounted_for_reading() {
    let volume = Volume::make(SIZE, &[]);
    let device = LoopDevice::attach(&volume.image(), true);
    let (device, root) = (text(device.path()), volume.root());
    for options in ["rw", "ro"] {
        let output = mount_again(&["mount", "-o", options, device, text(&root)]);
        done(&output);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(told.contains("mounted read-only"), options == "rw", "{told}");
        assert!(mounted(&root).0.ends_with(".cairn"), "{options}");
        assert!(root.join("lost+found").exists());
        let refused = fs::write(root.join("file"), "").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        umount(&root);
    }
}

#[test]
fn the_kernel_claims_the_device_and_the_unmount_waits_for_the_end() {
    let volume = Volume::make(SIZE, &[]);
    let device = LoopDevice::attach(&volume.image(), false);
    let (device, root) = (text(device.path()), volume.root());
    done(&run(CAIRN, &["mount", device, text(&root)]));
    assert_eq!(mounted(&root), ("fuseblk.cairn".to_owned(), device.to_owned()));
    let refused = run("mount", &["-t", "ext4", device, text(&volume.outside("mnt"))]);
    assert!(!refused.status.success(), "the kernel has mounted it a second time");
    for number in 0..200 {
        fs::write(volume.path(&format!("file {number}")), vec![7; 10_000]).unwrap();
    }
    // Of this mount alone: sync(2) waits for all, also for one whose daemon was stopped.
    rustix::fs::syncfs(fs::File::open(&root).unwrap()).unwrap();
    let report = stats(&root);
    let synced = report.pointer("/fuse/requests/syncfs").and_then(serde_json::Value::as_u64);
    assert!(synced.is_some_and(|count| count > 0), "{report}");
    fs::write(volume.path("last"), "written before the unmount").unwrap();
    umount(&root);
    // The daemon may still be ending. The volume is closed.
    let superblock = judge::run("dumpe2fs", ["-h", device]);
    assert!(superblock.contains("clean") && !superblock.contains("needs_recovery"), "{superblock}");
    judge::assert_clean(&volume.image());
    let read = judge::run("debugfs", ["-R", "cat last", text(&volume.image())]);
    assert!(read.starts_with("written before the unmount"), "{read}");
}

#[test]
fn f2fs_and_cairn_umount_do_the_same() {
    let mut volume = Volume::f2fs(SIZE, "");
    volume.unmount();
    let device = LoopDevice::attach(&volume.image(), false);
    let root = volume.root();
    done(&run(CAIRN, &["mount", text(device.path()), text(&root)]));
    assert_eq!(mounted(&root).0, "fuseblk.cairn");
    fs::write(volume.path("file"), vec![1; 100_000]).unwrap();
    // By the device, however its name says that it is opened.
    done(&run(CAIRN, &["umount", &format!("{}?io=direct", text(device.path()))]));
    assert!(!is_mounted(&root));
    judge::assert_f2fs_clean(&volume.image());
    // What can only be read needs no claim.
    done(&run(CAIRN, &["mount", "-r", text(device.path()), text(&root)]));
    assert_eq!(mounted(&root).0, "fuse.cairn");
    assert_eq!(fs::read(volume.path("file")).unwrap(), vec![1; 100_000]);
    umount(&root);
}

#[test]
fn a_refusal_names_the_mount_of_a_device_however_that_was_opened() {
    let volume = Volume::make(SIZE, &[]);
    let device = LoopDevice::attach(&volume.image(), false);
    let (device, root) = (text(device.path()), volume.root());
    for query in ["", "?io=direct", "?offset=0&io=buffered"] {
        let name = format!("{device}{query}");
        done(&run(CAIRN, &["mount", &name, text(&root)]));
        // The device, the same device in other words, and the file that it shows.
        for other in [device, &format!("{device}?io=direct"), text(&volume.image())] {
            let refused = run(CAIRN, &["rm", other, "file"]);
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert_eq!(refused.status.code(), Some(6), "{name}, {other}: {said}");
            let wanted = format!("mounted on {} (process ", root.display());
            assert!(said.contains(&wanted), "{name}, {other}: {said}");
        }
        done(&run(CAIRN, &["umount", &name]));
    }
}

#[test]
fn a_loop_device_is_made_where_it_is_asked_for() {
    let volume = Volume::make(SIZE, &[]);
    let (image, root) = (volume.image(), volume.root());
    done(&run(CAIRN, &["mount", "-o", "loop", text(&image), text(&root)]));
    let (kind, source) = mounted(&root);
    assert!(kind == "fuseblk.cairn" && source.starts_with("/dev/loop"), "{kind} {source}");
    let behind = run("losetup", &["-n", "-O", "BACK-FILE", &source]);
    assert_eq!(String::from_utf8_lossy(&behind.stdout).trim(), text(&image));
    fs::write(volume.path("file"), "contents").unwrap();
    // Neither Cairn nor QEMU writes it meanwhile.
    let refused = run(CAIRN, &["rm", text(&image), "file"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(6), "{said}");
    assert!(said.contains(&format!("mounted on {}", root.display())), "{said}");
    // By the image, as umount(8) does.
    done(&run(CAIRN, &["umount", text(&image)]));
    judge::assert_clean(&image);
    let left = run("losetup", &["-n", "-O", "BACK-FILE", &source]);
    assert_ne!(String::from_utf8_lossy(&left.stdout).trim(), text(&image), "{source} is left");
}

/// The kernel lets such a device be opened for writing, and refuses the writes.
#[test]
fn a_loop_device_of_what_is_read_only_is_read_only() {
    let volume = Volume::make(SIZE, &[]);
    let (image, root) = (volume.image(), volume.root());
    let device = LoopDevice::attach(&image, true);
    let mounted = run(CAIRN, &["mount", "-o", "loop", text(device.path()), text(&root)]);
    let said = String::from_utf8_lossy(&mounted.stderr).into_owned();
    assert!(mounted.status.success() && said.contains("mounted read-only: "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(fs::read_dir(&root).unwrap().count() > 0);
    assert_eq!(fs::write(volume.path("new"), "").unwrap_err().raw_os_error(), Some(30));
    umount(&root);
}

#[test]
fn a_killed_daemon_leaves_a_volume_that_recovers() {
    let volume = Volume::make(SIZE, &[]);
    let device = LoopDevice::attach(&volume.image(), false);
    let (device, root) = (text(device.path()), volume.root());
    let mut daemon = Command::new(CAIRN)
        .args(["mount", "-f", device, text(&root)])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while !is_mounted(&root) {
        assert!(started.elapsed() < Duration::from_secs(60), "it does not mount");
        std::thread::sleep(Duration::from_millis(5));
    }
    fs::write(volume.path("synced"), "contents").unwrap();
    fs::File::open(volume.path("synced")).unwrap().sync_all().unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    // The dead mount has the claim.
    let busy = run(CAIRN, &["mount", device, text(&root)]);
    assert_eq!(busy.status.code(), Some(6), "{}", String::from_utf8_lossy(&busy.stderr));
    done(&run(CAIRN, &["umount", "-l", text(&root)]));
    done(&run(CAIRN, &["mount", device, text(&root)]));
    assert_eq!(fs::read(volume.path("synced")).unwrap(), b"contents");
    umount(&root);
    judge::assert_clean(&volume.image());
}

#[test]
fn what_is_in_use_or_not_allowed_is_refused_before_anything_is_written() {
    let volume = Volume::make(SIZE, &[]);
    let (image, root) = (volume.image(), volume.root());
    let before = fs::read(&image).unwrap();
    let device = LoopDevice::attach(&image, false);
    done(&run("mount", &["-t", "ext4", "-o", "ro", text(device.path()), text(&root)]));
    let other = volume.outside("other");
    fs::create_dir(&other).unwrap();
    let refused = run(CAIRN, &["mount", text(device.path()), text(&other)]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(6) && said.contains("umount"), "{said}");
    umount(&root);
    let refused = run(CAIRN, &["mount", "-o", "loop=/dev/loop7", text(&image), text(&root)]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && said.contains("write loop"), "{said}");
    assert!(fs::read(&image).unwrap() == before, "something was written");
}

/// What `info` says of the way to the bytes.
fn way(image: &str) -> String {
    let output = run(CAIRN, &["info", image]);
    done(&output);
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().find_map(|line| line.strip_prefix("device:")).expect("it is told").trim().into()
}

#[test]
fn a_block_device_is_used_as_its_name_says_and_info_tells() {
    let volume = Volume::make(SIZE, &[]);
    let image = volume.image();
    let device = LoopDevice::attach(&image, false);
    let device = text(device.path());
    let told = way(&format!("{device}?io=direct"));
    let is_direct = told.contains("direct, up to 64 requests at once");
    assert!(is_direct || told.contains("io_uring is refused"), "{told}");
    let told = way(&format!("{device}?io=buffered"));
    assert!(told.contains("through the page cache") && !told.contains("direct"), "{told}");
    for name in [device.to_owned(), format!("{device}?io=auto")] {
        let told = way(&name);
        let is_mixed = told.contains("large transfers direct, ") && told.contains(" 16 writes");
        assert!(is_mixed && told.ends_with("others through the page cache)"), "{told}");
    }
    for name in [text(&image).to_owned(), format!("{}?io=auto", image.display())] {
        assert_eq!(way(&name), "file");
    }
    let refused = run(CAIRN, &["info", &format!("{device}?io=fast")]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        refused.status.code() == Some(2) && said.contains("auto, direct or buffered"),
        "{said}"
    );
}

/// A daemon is killed while it writes, on a block device, and on one and a file that are used
/// directly alone.
#[test]
fn a_kill_under_load_leaves_what_was_synced() {
    let volume = Volume::make(SIZE, &[]);
    let (image, root) = (volume.image(), volume.root());
    let device = LoopDevice::attach(&image, false);
    let direct = [text(device.path()), text(&image)].map(|name| format!("{name}?io=direct"));
    let names = [text(device.path()).to_owned()].into_iter().chain(direct);
    let names: Vec<String> = names.collect();
    for (round, name) in names.iter().enumerate() {
        let mut daemon = Command::new(CAIRN)
            .args(["mount", "-f", name, text(&root)])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let started = Instant::now();
        while !is_mounted(&root) {
            assert!(started.elapsed() < Duration::from_secs(60), "it does not mount");
            std::thread::sleep(Duration::from_millis(5));
        }
        let path = |number: usize| volume.path(&format!("{round} {number}"));
        let contents = |number: usize| vec![number as u8; 50_000 + number * 4000];
        for number in 0..40 {
            fs::write(path(number), contents(number)).unwrap();
            if number < 20 {
                fs::File::open(path(number)).unwrap().sync_all().unwrap();
            }
        }
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        done(&run("umount", &["-l", text(&root)]));
        done(&run(CAIRN, &["mount", name, text(&root)]));
        for number in 0..20 {
            assert!(fs::read(path(number)).unwrap() == contents(number), "{round} {number}");
        }
        done(&run(CAIRN, &["umount", text(&root)]));
        judge::assert_clean(&image);
    }
}

/// A device that somebody who looks at new devices may have for a moment.
fn opened(device: &Path) -> DirectFile {
    let started = Instant::now();
    loop {
        match DirectFile::open(device, OpenOptions::write()) {
            Err(error)
                if error.kind == ErrorKind::InUse
                    && started.elapsed() < Duration::from_secs(60) =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            opened => return opened.unwrap(),
        }
    }
}

/// The file behind a loop device has no room.
#[test]
fn a_write_that_the_device_fails_is_an_error_with_its_place() {
    let volume = Volume::make(SIZE, &[]);
    let small = volume.outside("small");
    fs::create_dir(&small).unwrap();
    done(&run("mount", &["-t", "tmpfs", "-o", "size=2m", "tmpfs", text(&small)]));
    let image = small.join("image");
    fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    let device = LoopDevice::attach(&image, false);
    for is_mixed in [false, true] {
        let device = opened(device.path()).with_depth();
        let device = if is_mixed { device.with_page_cache().unwrap() } else { device };
        let write = |number: u64| {
            let bufs = vec![IoBuf::copy_from(&vec![1; 1 << 20]).into_bytes()];
            Request::Write { offset: number << 20, bufs }
        };
        let batch = Batch { requests: (0..16).map(write).collect(), ..Batch::default() };
        let failed = device.submit(batch).wait().unwrap_err();
        let (offset, len) = failed.range.expect("a place");
        assert!(matches!(failed.kind, ErrorKind::Io | ErrorKind::NoSpace), "{failed}");
        assert!(offset < 16 << 20 && offset.is_multiple_of(1 << 20) && len == 1 << 20, "{failed}");
        // It goes on: what is written can be read.
        let buf = IoBuf::zeroed(4096);
        let read = Batch { requests: vec![Request::Read { offset: 0, buf }], ..Batch::default() };
        assert_eq!(device.submit(read).wait().unwrap().len(), 1);
    }
    drop(device);
    umount(&small);
}
