//! An idmapped mount of a mount: the same files with other owners, as for containers. The results
//! are compared with the kernel's ext4.

use std::path::Path;

use cairn_testkit::judge;

use crate::fixture::Volume;

/// Mounts DIRECTORY a second time at PLACE, where its users 0 to 99 are 1000 to 1099. Prints what
/// root and user 1000 can do.
const USE: &str = r#"
import ctypes, errno, os, signal, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
source, place = sys.argv[1:3]

def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "failed")
    return result

def user_namespace():
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        check(libc.unshare(0x10000000))
        os.write(go, b"x")
        signal.pause()
    os.read(ready, 1)
    for kind in ("uid", "gid"):
        with open(f"/proc/{child}/{kind}_map", "w") as table:
            table.write("0 1000 100")
    space = os.open(f"/proc/{child}/ns/user", os.O_RDONLY)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return space

def tell(what, work):
    try:
        result = work()
    except OSError as error:
        result = errno.errorcode[error.errno]
    print(what, result)

def owner(path):
    found = os.lstat(path)
    return oct(found.st_mode), found.st_uid, found.st_gid

def as_user(uid, work):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.setgroups([]), os.setresgid(uid, uid, uid), os.setresuid(uid, uid, uid)
        work()
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)

def make(path, mode=0o644):
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, mode))

os.chmod(source, 0o755)
make(f"{source}/old")
os.chown(f"{source}/old", 5, 6)
os.chmod(f"{source}/old", 0o4777)
tree = check(libc.syscall(428, -100, source.encode(), 1))
attributes = struct.pack("<4Q", 0x00100000, 0, 0, user_namespace())
check(libc.syscall(442, tree, b"", 0x1000, attributes, 32))
check(libc.syscall(429, tree, b"", -100, place.encode(), 4))
tell("old", lambda: owner(f"{place}/old"))

def user():
    tell("make", lambda: make(f"{place}/new"))
    tell("mkdir", lambda: os.mkdir(f"{place}/dir"))
    tell("link", lambda: os.symlink("x", f"{place}/link"))
    tell("node", lambda: os.mkfifo(f"{place}/fifo"))
    tell("unnamed", lambda: os.close(os.open(place, os.O_TMPFILE | os.O_RDWR)))
    tell("chown", lambda: os.chown(f"{place}/new", 1001, 1000))
    tell("write", lambda: open(f"{place}/old", "r+").write("changed"))
    tell("allocate", lambda: os.posix_fallocate(os.open(f"{place}/old", os.O_RDWR), 0, 100))

as_user(1000, user)
as_user(77, lambda: tell("stranger", lambda: make(f"{place}/strange")))
tell("root chown", lambda: os.chown(f"{place}/new", 1001, 1002))
tell("root chown out", lambda: os.chown(f"{place}/new", 5, 5))
tell("root make", lambda: make(f"{place}/root"))
for name in ("old", "new", "dir", "link", "fifo"):
    tell(name, lambda: owner(f"{source}/{name}"))
    tell(name + " there", lambda: owner(f"{place}/{name}"))
os.close(tree)
check(libc.umount2(place.encode(), 0))
"#;

/// The results on an idmapped mount of this directory.
fn transcript(mount: &Path) -> String {
    let place = cairn_testkit::place::Place::new();
    judge::run("python3", [Path::new("-c"), Path::new(USE), mount, place.path()])
}

fn map(mut volume: Volume) {
    let expected = judge::on_the_kernel_s_ext4(64 << 20, &[], transcript);
    assert!(expected.contains("old ('0o104777', 1005, 1006)"), "{expected}");
    assert_eq!(transcript(&volume.root()), expected, "ours, the kernel's");
    volume.unmount();
}

#[test]
fn owners_on_idmapped_mounts_are_the_kernel_s() {
    map(Volume::mounted(64 << 20, "idmap"));
    map(Volume::f2fs(64 << 20, "idmap"));
}
