//! Programs with privileges that another user changes, and readers beside asynchronous direct
//! writes: the kernel caches this state for an hour unless it is notified.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use cairn_testkit::judge;

use crate::fixture::Volume;

/// Ordinary users change a set-user-ID program in each possible way and run it.
const CHANGE: &str = r#"
import ctypes, mmap, os, shutil, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
KEEP, PUNCH, ZERO = 1, 2, 16

def allocate(mode):
    def change(fd, size):
        assert libc.fallocate(fd, mode, ctypes.c_long(size), ctypes.c_long(8192)) == 0, os.strerror(ctypes.get_errno())
    return change

def direct(fd, size):
    page = mmap.mmap(-1, 4096)
    os.preadv(fd, [page], 0)
    os.close(fd)
    fd = os.open(path, os.O_RDWR | os.O_DIRECT)
    os.pwritev(fd, [page], 0)
    os.close(fd)

def copy(fd, size):
    source = os.open(sys.argv[1] + "/source", os.O_RDONLY)
    assert os.copy_file_range(source, fd, 100, 0, 0) == 100

WAYS = {"write": lambda fd, size: os.pwrite(fd, os.pread(fd, 100, 0), 0), "direct": direct, "allocate": allocate(KEEP),
        "punch": allocate(KEEP | PUNCH), "zero": allocate(KEEP | ZERO), "extend": allocate(0), "truncate": lambda fd, size: os.ftruncate(fd, size),
        "copy": copy}
shutil.copy("/usr/bin/id", sys.argv[1] + "/source")
for privilege in ("set-user-id", "capability"):
    for way, change in WAYS.items():
        path = f"{sys.argv[1]}/{privilege} {way}"
        shutil.copy("/usr/bin/id", path)
        os.chmod(path, 0o6777 if privilege == "set-user-id" else 0o777)
        if privilege == "capability":
            subprocess.run(["setcap", "cap_net_raw+ep", path], check=True)
        user = dict(user=65534, group=65534, extra_groups=[])
        if privilege == "set-user-id":
            assert subprocess.run([path, "-u"], capture_output=True, **user).stdout == b"0\n"
        child = os.fork()
        if child == 0:
            os.setgroups([]), os.setresgid(65534, 65534, 65534), os.setresuid(65534, 65534, 65534)
            fd = os.open(path, os.O_RDWR)
            change(fd, os.fstat(fd).st_size)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, way
        ran = subprocess.run([path, "-u"], capture_output=True, **user).stdout
        print(privilege, way, oct(os.stat(path).st_mode), ran, sorted(set(os.listxattr(path))))
"#;

/// Asynchronous direct writes while the same pages are read through the cache. Prints the number of
/// rounds that left stale pages.
const BESIDE: &str = r#"
import ctypes, mmap, os, struct, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
PAGES, path, stale = 16, sys.argv[1] + "/file", 0
with open(path, "wb") as file:
    file.write(bytes(PAGES * 4096))
fd, reader = os.open(path, os.O_RDWR | os.O_DIRECT), os.open(path, os.O_RDONLY)
context, memory, ended = ctypes.c_ulong(0), mmap.mmap(-1, 4096), False
assert libc.syscall(206, 64, ctypes.byref(context)) == 0
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
blocks = [ctypes.create_string_buffer(struct.pack("<QIIHhIQQqQII", 0, 0, 0, 1, 0, fd, address, 4096, at * 4096, 0, 0, 0), 64)
          for at in range(PAGES)]
pointers = (ctypes.c_void_p * PAGES)(*[ctypes.addressof(block) for block in blocks])

def read():
    while not ended:
        os.pread(reader, PAGES * 4096, 0)

thread = threading.Thread(target=read)
thread.start()
for round in range(200):
    memory[:] = bytes([round % 255 + 1]) * 4096
    assert libc.syscall(209, context, PAGES, pointers) == PAGES
    assert libc.syscall(208, context, PAGES, PAGES, ctypes.create_string_buffer(32 * PAGES), None) == PAGES
    stale += any(byte != round % 255 + 1 for byte in os.pread(reader, PAGES * 4096, 0))
ended = True
thread.join()
print(stale)
"#;

fn python(program: &str, place: &Path) -> String {
    judge::run("python3", [Path::new("-c"), Path::new(program), place])
}

fn change(mut volume: Volume) {
    std::fs::set_permissions(volume.root(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let told = python(CHANGE, &volume.root());
    assert_eq!(told.lines().count(), 16, "{told}");
    for line in told.lines() {
        assert!(line.ends_with("0o100777 b'65534\\n' []"), "privileges are left: {line}");
    }
    // On the volume, too.
    volume.remount();
    for entry in std::fs::read_dir(volume.root()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().as_encoded_bytes().contains(&b' ') {
            assert_eq!(
                entry.metadata().unwrap().permissions().mode() & 0o7777,
                0o777,
                "{}",
                entry.path().display()
            );
        }
    }
    volume.unmount();
}

#[test]
fn a_program_changed_by_another_user_loses_its_privileges_on_ext4() {
    change(Volume::mounted(128 << 20, ""));
}

#[test]
fn a_program_changed_by_another_user_loses_its_privileges_on_f2fs() {
    change(Volume::f2fs(128 << 20, ""));
}

#[test]
fn readers_see_what_asynchronous_direct_writes_replaced() {
    for mut volume in [Volume::mounted(64 << 20, ""), Volume::f2fs(64 << 20, "")] {
        assert_eq!(python(BESIDE, &volume.root()).trim(), "0", "rounds with stale pages");
        volume.unmount();
    }
}
