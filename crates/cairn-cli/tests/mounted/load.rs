//! Load from several processes at once.

use std::path::Path;

use cairn_testkit::deep;
use cairn_testkit::judge;
use cairn_testkit::modes::MODES;

use crate::fixture::{Volume, transports};

#[test]
fn fio_verifies_what_it_wrote() {
    for transport in transports() {
        let mut volume = Volume::mounted(512 << 20, transport);
        fio_verifies(&mut volume, if deep() { "64M" } else { "16M" });
    }
}

#[test]
fn fio_verifies_what_it_wrote_on_f2fs() {
    let (room, file) = if deep() { (280, "64M") } else { (40, "8M") };
    for mode in &MODES {
        let mut volume = Volume::worn(room, mode);
        fio_verifies(&mut volume, file);
        volume.assert_reused();
    }
}

/// Four jobs write and read back: small and unaligned, large, and through memory maps.
fn fio_verifies(volume: &mut Volume, size: &str) {
    let directory = format!("--directory={}", volume.root().display());
    let size = &*format!("--size={size}");
    let common = [
        "--verify=crc32c",
        "--verify_state_save=0",
        "--verify_fatal=1",
        "--do_verify=1",
        "--end_fsync=1",
        "--randseed=7",
        "--rw=randwrite",
    ];
    let jobs = [
        ["--name=small", "--ioengine=psync", "--bsrange=512-16k"],
        ["--name=large", "--ioengine=psync", "--bsrange=64k-1M"],
        ["--name=mapped", "--ioengine=mmap", "--bsrange=4k-64k"],
        ["--name=mapped-small", "--ioengine=mmap", "--bsrange=512-4k"],
    ];
    let words = [&*directory, size].into_iter().chain(common).chain(jobs.into_iter().flatten());
    judge::run("fio", words);
    // Once more from the image.
    volume.remount();
    let words = [&*directory, size]
        .into_iter()
        .chain(common)
        .chain(["--verify_only=1"])
        .chain(jobs.into_iter().flatten());
    judge::run("fio", words);
    volume.unmount();
}

#[test]
fn memory_maps_of_processes_agree() {
    for transport in transports() {
        maps_agree(&mut Volume::mounted(256 << 20, transport));
    }
}

#[test]
fn memory_maps_of_processes_agree_on_f2fs() {
    for mode in &MODES {
        let mut volume = Volume::worn(32, mode);
        maps_agree(&mut volume);
        volume.assert_reused();
    }
}

/// One process writes a file through a mapping, others read it through their own mappings and
/// system calls; then the reverse. Nothing is synced between them.
fn maps_agree(volume: &mut Volume) {
    let file = format!("--filename={}", volume.path("shared").display());
    let common = [
        &file,
        "--size=24M",
        "--bs=4k",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
    ];
    for (writer, seed) in
        [("mmap", "--randseed=1"), ("psync", "--randseed=2"), ("mmap", "--randseed=3")]
    {
        let engine = |name: &str| format!("--ioengine={name}");
        let written = [
            "--name=writer".to_owned(),
            engine(writer),
            "--rw=randwrite".into(),
            "--do_verify=0".into(),
        ];
        let read = ["mmap", "psync"].map(|reader| {
            let name = format!("--name=reader-{reader}");
            [
                name,
                engine(reader),
                "--rw=read".into(),
                "--do_verify=1".into(),
                "--wait_for=writer".into(),
            ]
        });
        let words = written.iter().chain(read.iter().flatten()).map(String::as_str);
        judge::run("fio", common.into_iter().chain([seed]).chain(words));
    }
    let before = std::fs::read(volume.path("shared")).unwrap();
    volume.remount();
    assert!(
        std::fs::read(volume.path("shared")).unwrap() == before,
        "maps reached the disk otherwise"
    );
    volume.unmount();
}

/// Many small files, with each sync method of fs_mark. Each process has its own directory, because
/// two processes that begin in the same microsecond give their files the same names. (Of 6,345 runs
/// on a tmpfs with eight processes in one directory, 23 failed for this reason.)
#[test]
fn fs_mark_runs() {
    let mut volume = Volume::mounted(512 << 20, "");
    let before = volume.free();
    let log = volume.outside("fs_mark");
    for method in ["0", "1", "3", "5"] {
        // fs_mark accepts paths of at most 40 bytes.
        let directories = ["m0", "m1", "m2", "m3"].map(|name| volume.path(name));
        let count = if deep() { "5000" } else { "500" };
        let mut words =
            ["-n", count, "-s", "10000", "-D", "16", "-N", "64", "-L", "2", "-S", method, "-l"]
                .map(Path::new)
                .to_vec();
        words.push(&log);
        for directory in &directories {
            std::fs::create_dir(directory).unwrap();
            words.extend([Path::new("-d"), directory]);
        }
        judge::run("fs_mark", words);
        directories.iter().for_each(|directory| std::fs::remove_dir_all(directory).unwrap());
    }
    crate::space::wait_for_free(&volume, before);
    volume.unmount();
}

#[test]
fn stress_ng_runs() {
    for transport in transports() {
        let mut volume = Volume::mounted(512 << 20, transport);
        stress(&mut volume, if deep() { "60s" } else { "8s" });
    }
}

#[test]
fn stress_ng_runs_on_f2fs() {
    for mode in &MODES {
        let mut volume = Volume::worn(128, mode);
        stress(&mut volume, if deep() { "60s" } else { "5s" });
        volume.assert_reused();
    }
}

fn stress(volume: &mut Volume, seconds: &str) {
    let root = volume.root();
    let words = ["--verify", "--hdd-bytes", "64m", "--timeout", seconds, "--temp-path"];
    let kinds = ["hdd", "dentry", "rename", "link", "symlink", "dir"]
        .map(|kind| [format!("--{kind}"), "1".to_owned()]);
    let words = words
        .into_iter()
        .chain([root.to_str().unwrap()])
        .chain(kinds.iter().flatten().map(String::as_str));
    judge::run("stress-ng", words);
    volume.unmount();
}
