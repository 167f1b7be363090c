//! Ioctls, compared with the kernel's ext4: the answer to root and to a user, and the number of
//! bytes written to the caller's buffer.

use std::path::Path;

use cairn_testkit::judge::{self, KernelMount};

use crate::fixture::Volume;

/// Calls every ioctl with canaries behind the buffer, and prints a line for each.
const ASK: &str = r#"
import errno, fcntl, os, struct, sys
root = sys.argv[1]
uid = int(sys.argv[2])
# name: number, argument in, of a file or the root
IOCTLS = {
    "FS_IOC_GETFLAGS": (0x80086601, b"", "file"),
    "FS_IOC_SETFLAGS": (0x40086602, struct.pack("<i", 0x80000 | 0x40), "file"),
    "FS_IOC_SETFLAGS unknown": (0x40086602, struct.pack("<i", 0x80000 | 0x2), "file"),
    "FS_IOC_GETVERSION": (0x80087601, b"", "file"),
    "FS_IOC_GETVERSION dir": (0x80087601, b"", "root"),
    "EXT4_IOC_GETVERSION": (0x80086603, b"", "file"),
    "FS_IOC_FSGETXATTR": (0x801c581f, b"", "file"),
    "FS_IOC_FSSETXATTR": (0x401c5820, struct.pack("<IIIII", 0x80, 0, 0, 0, 0), "file"),
    "FS_IOC_FSSETXATTR project": (0x401c5820, struct.pack("<IIIII", 0, 0, 0, 7, 0), "file"),
    "FS_IOC_FSSETXATTR extsize": (0x401c5820, struct.pack("<IIIII", 0, 4096, 0, 0, 0), "file"),
    "FS_IOC_SETFSLABEL": (0x41009432, b"label\0", "root"),
    "FS_IOC_SETFSLABEL of a file": (0x41009432, b"label\0", "file"),
    "FS_IOC_SETFSLABEL long": (0x41009432, b"a" * 17 + b"\0", "root"),
    "FS_IOC_SETFSLABEL without an end": (0x41009432, b"a" * 256, "root"),
    "FS_IOC_GETFSLABEL": (0x81009431, b"", "root"),
    "FITRIM": (0xc0185879, struct.pack("<QQQ", 0, 1 << 63, 0), "root"),
    "FITRIM again": (0xc0185879, struct.pack("<QQQ", 0, 1 << 63, 0), "root"),
    "FITRIM short": (0xc0185879, struct.pack("<QQQ", 0, 100, 0), "root"),
    "FITRIM behind the end": (0xc0185879, struct.pack("<QQQ", 1 << 40, 1 << 40, 0), "root"),
    "FITRIM absurd minimum": (0xc0185879, struct.pack("<QQQ", 0, 1 << 40, 1 << 40), "root"),
    "FITRIM a part": (0xc0185879, struct.pack("<QQQ", 1 << 20, 1 << 20, 0), "root"),
    "FIFREEZE unknown": (0xc0045899, b"", "root"),
    "FIONREAD": (0x541b, b"", "file"),
    "FIGETBSZ": (2, b"", "file"),
    "BLKGETSIZE": (0x1260, b"", "file"),
    "FS_IOC_GETFSUUID": (0x80111500, b"", "root"),
    "nothing known": (0x8004fffe, b"", "file"),
}
fd = os.open(root + "/ioctl", os.O_CREAT | os.O_RDWR, 0o666)
os.write(fd, b"contents"); os.close(fd)
if uid:
    os.setgroups([]), os.setresgid(uid, uid, uid), os.setresuid(uid, uid, uid)
for name, (number, given, where) in IOCTLS.items():
    fd = os.open(root + "/ioctl" if where == "file" else root, os.O_RDONLY)
    size = number >> 16 & 0x3fff
    results = []
    # Two canaries: a byte that is written may be the canary by chance.
    for canary in (0xa5, 0x5a):
        buffer = bytearray(given + bytes([canary]) * (1024 - len(given)))
        try:
            fcntl.ioctl(fd, number, buffer, True)
            results.append((buffer, canary))
        except OSError as error:
            results = errno.errorcode[error.errno]
            break
    os.close(fd)
    if isinstance(results, str):
        print(name, results)
        continue
    given = given + b"\0" * (1024 - len(given))
    written = [at for at in range(1024) if any(buffer[at] != (canary if at >= len(given.rstrip(b"\0")) else given[at]) for buffer, canary in results)]
    last = max(written) + 1 if written else 0
    print(name, "writes up to", last, "behind" if last > max(size, 4) else "")
"#;

/// Shuts a volume down with these flags. It has a synced directory and a file that is not synced.
const SHUT_DOWN: &str = r#"
import errno, fcntl, os, struct, sys
root, flags = sys.argv[1], int(sys.argv[2])
os.mkdir(root + "/synced")
directory = os.open(root, os.O_RDONLY)
os.fsync(directory)
file = os.open(root + "/named", os.O_CREAT | os.O_RDWR, 0o666)
os.write(file, b"x" * 5000)
def attempt(what, call):
    try:
        call()
        print(what, "worked")
    except OSError as error:
        print(what, errno.errorcode[error.errno])
attempt("unknown flags", lambda: fcntl.ioctl(directory, 0x8004587d, struct.pack("<I", 77)))
attempt("shutdown", lambda: fcntl.ioctl(directory, 0x8004587d, struct.pack("<I", flags)))
attempt("mkdir", lambda: os.mkdir(root + "/late"))
attempt("chmod", lambda: os.chmod(root + "/synced", 0o700))
attempt("rename", lambda: os.rename(root + "/synced", root + "/late"))
attempt("setxattr", lambda: os.setxattr(root + "/synced", "user.late", b"late"))
attempt("rmdir", lambda: os.rmdir(root + "/synced"))
attempt("write", lambda: os.write(file, b"late"))
attempt("overwrite", lambda: os.pwrite(file, b"late", 0))
attempt("truncate", lambda: os.ftruncate(file, 5000))
attempt("stat", lambda: (os.stat(root + "/named"), os.fstat(file)))
attempt("fsync", lambda: os.fsync(file))
"#;

/// Names and sizes of files at the root.
fn listing(root: &Path) -> Vec<(String, u64)> {
    let entries = std::fs::read_dir(root).unwrap().map(Result::unwrap);
    let files =
        entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap()));
    let mut files: Vec<_> =
        files.map(|(name, found)| (name, if found.is_file() { found.len() } else { 0 })).collect();
    files.retain(|(name, _)| name != "lost+found");
    files.sort();
    files
}

fn shut_down(root: &Path, flags: &str) -> String {
    judge::run("python3", [Path::new("-c"), Path::new(SHUT_DOWN), root, Path::new(flags)])
}

/// A shutdown first writes everything, or the log, or nothing. The later answers of calls and the
/// contents afterwards are as on the kernel's ext4.
#[test]
fn a_shutdown_keeps_what_its_flags_ask_for() {
    for flags in ["0", "1", "2"] {
        let outside = tempfile::tempdir().unwrap();
        let image = outside.path().join("image");
        judge::mke2fs(&image, 64 << 20, &["-t", "ext4"]);
        let kernel = KernelMount::new(&image, "");
        let answers = shut_down(kernel.path(), flags);
        kernel.unmount();
        let kernel = KernelMount::new(&image, "");
        let kept = listing(kernel.path());
        kernel.unmount();
        assert_eq!(kept.len(), if flags == "2" { 1 } else { 2 }, "{flags}: {kept:?}");
        for mut volume in [Volume::mounted(64 << 20, ""), Volume::f2fs(64 << 20, "")] {
            assert_eq!(shut_down(&volume.root(), flags), answers, "{flags}");
            volume.end_with_status();
            volume.mount_again();
            assert_eq!(listing(&volume.root()), kept, "{flags}");
            volume.unmount();
        }
    }
}

/// The flags of F2FS only. Metadata without a checkpoint: the earlier checkpoint stays valid. A
/// checkpoint that asks for fsck: the volume continues.
#[test]
fn f2fs_ends_as_its_own_flags_say() {
    let mut ext4 = Volume::mounted(64 << 20, "");
    let refused = shut_down(&ext4.root(), "3");
    assert!(refused.contains("shutdown EINVAL") && refused.contains("mkdir worked"), "{refused}");
    ext4.unmount();
    let kept_by = |flags: &str| {
        let mut volume = Volume::f2fs(64 << 20, "");
        let answers = shut_down(&volume.root(), flags);
        volume.end_with_status();
        let state = judge::f2fs_checkpoint_state(&volume.image());
        volume.mount_again();
        let kept = listing(&volume.root());
        volume.unmount();
        (answers, kept, state)
    };
    let (no_sync, flush) = (kept_by("2"), kept_by("3"));
    assert_eq!((&flush.0, &flush.1), (&no_sync.0, &no_sync.1));
    assert!(flush.0.contains("shutdown worked") && flush.0.contains("mkdir EIO"), "{}", flush.0);
    let (answers, kept, state) = kept_by("4");
    assert!(
        ["shutdown", "mkdir", "fsync"]
            .iter()
            .all(|call| answers.contains(&format!("{call} worked"))),
        "{answers}"
    );
    let kept: Vec<_> = kept.iter().map(|(name, size)| (name.as_str(), *size)).collect();
    assert_eq!(kept, [("late", 0), ("named", 5000)], "synced was renamed");
    assert!(state.contains(" fsck"), "dump.f2fs: {state}");
}

/// Lines that differ from the kernel's: the ioctl, the answer here, and the reason.
const KNOWN: [(&str, &str, &str); 4] = [
    (
        "FS_IOC_GETFSLABEL",
        "writes up to 256",
        "the call's buffer is that long; Linux fills what its own label can take",
    ),
    (
        "FS_IOC_SETFLAGS unknown",
        "ENOTSUP",
        "flags that do nothing in Linux, either, are not stored",
    ),
    (
        "FS_IOC_FSSETXATTR extsize",
        "ENOTSUP",
        "Linux ignores the size of extents that it was asked for",
    ),
    ("FS_IOC_GETFSUUID", "ENOTTY", "the kernel's FUSE answers it itself: no"),
];

fn ask(mount: &Path, user: &str) -> Vec<String> {
    let told = judge::run("python3", [Path::new("-c"), Path::new(ASK), mount, Path::new(user)]);
    told.lines().map(|line| line.trim_end().to_owned()).collect()
}

fn compare(mut volume: Volume, same_format: bool) {
    let outside = tempfile::tempdir().unwrap();
    let image = outside.path().join("image");
    judge::mke2fs(&image, 64 << 20, &["-t", "ext4"]);
    let kernel = KernelMount::new(&image, "");
    for user in ["0", "65534"] {
        let (expected, found) = (ask(kernel.path(), user), ask(&volume.root(), user));
        assert_eq!(expected.len(), found.len());
        for (kernel, ours) in expected.iter().zip(&found) {
            let is_known = |(name, here, _): &(&str, &str, &str)| *ours == format!("{name} {here}");
            // Limits of the format: a group of ext4, sixteen bytes of label.
            let format = !same_format
                && (ours.starts_with("FITRIM absurd")
                    || ours.starts_with("FS_IOC_SETFSLABEL long"));
            assert!(!ours.ends_with("behind"), "user {user}: {ours}");
            assert!(
                kernel == ours || format || KNOWN.iter().any(is_known),
                "user {user}: {ours}; the kernel: {kernel}"
            );
        }
    }
    kernel.unmount();
    volume.unmount();
}

#[test]
fn ioctls_of_ext4_answer_and_write_as_the_kernel_s() {
    compare(Volume::mounted(64 << 20, ""), true);
}

#[test]
fn ioctls_of_f2fs_write_no_further_than_they_may() {
    compare(Volume::f2fs(64 << 20, ""), false);
}
