//! Root-reserved blocks: the same users may use them as on the kernel's ext4, for data, names and
//! attributes.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use cairn_testkit::judge::{self, KernelMount};
use serde_json::Value;

use crate::fixture::Volume;

/// Makes a directory for each user as root; fills the volume as an ordinary user; or tries all
/// operations that allocate blocks, and counts the successful ones.
const PROGRAM: &str = r#"
import errno, json, mmap, os, signal, sys
what, place = sys.argv[1:3]
TRIES = 20

def become(user):
    if user == "root":
        return
    os.setgroups([88] if user == "member" else []), os.setresgid(65534, 65534, 65534), os.setresuid(65534, 65534, 65534)

def count(one, tries=TRIES):
    done = 0
    for number in range(tries):
        try:
            one(number)
            done += 1
        except OSError as error:
            assert error.errno == errno.ENOSPC, error
    return done

def filled(path):
    with open(path, "wb") as file:
        file.write(b"x" * 4096)
        os.fsync(file.fileno())

if what == "prepare":
    for user in sys.argv[3:]:
        directory = f"{place}/{user}"
        os.mkdir(directory)
        names = ["direct", "buffered", "mapped", "allocated", "copied", "names", "moved"] + [f"file{number}" for number in range(TRIES)]
        for name in names:
            path = f"{directory}/{name}"
            os.mkdir(path) if name in ("names", "moved") else open(path, "w").close()
            os.chown(path, 65534, 65534)
        filled(f"{directory}/source")
        os.chown(directory, 65534, 65534)
    os.chmod(place, 0o777)
    os.sync()
elif what == "fill":
    become("ordinary")
    file = os.open(f"{place}/fill", os.O_WRONLY | os.O_CREAT)
    size, chunk = 0, 16 << 20
    while chunk >= 4096:
        try:
            os.posix_fallocate(file, size, chunk)
            size += chunk
        except OSError as error:
            assert error.errno == errno.ENOSPC, error
            size = max(size, -(-os.fstat(file).st_blocks * 512 // 4096) * 4096)
            chunk //= 2
    os.fsync(file)
    left = os.statvfs(place)
    print(json.dumps({"bavail": left.f_bavail}))
else:
    become(what)
    here = f"{place}/{what}"
    page = mmap.mmap(-1, 4096)
    long = "n" * 200
    source = os.open(f"{here}/source", os.O_RDONLY)

    def direct(number):
        file = os.open(f"{here}/direct", os.O_WRONLY | os.O_DIRECT)
        try:
            os.pwritev(file, [page], number * 4096)
        finally:
            os.close(file)

    def buffered(number):
        file = os.open(f"{here}/buffered", os.O_WRONLY)
        try:
            os.pwrite(file, b"x" * 4096, number * 4096)
            os.fsync(file)
        finally:
            os.close(file)

    # The kernel's ext4 kills who touches the page; a mount says it when the page is written.
    def mapped(number):
        child = os.fork()
        if child == 0:
            file = os.open(f"{here}/mapped", os.O_RDWR)
            os.ftruncate(file, (number + 1) * 4096)
            with mmap.mmap(file, 4096, offset=number * 4096) as memory:
                memory[:7] = b"written"
                try:
                    memory.flush()
                except OSError as error:
                    os._exit(error.errno)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGBUS, status
            raise OSError(errno.ENOSPC, "killed")
        if os.WEXITSTATUS(status) != 0:
            raise OSError(os.WEXITSTATUS(status), "msync")

    def allocate(number):
        file = os.open(f"{here}/allocated", os.O_WRONLY)
        try:
            os.posix_fallocate(file, number * 4096, 4096)
        finally:
            os.close(file)

    def copy(number):
        file = os.open(f"{here}/copied", os.O_WRONLY)
        try:
            os.copy_file_range(source, file, 4096, 0, number * 4096)
            os.fsync(file)
        finally:
            os.close(file)

    acl = b"\2\0\0\0" + b"".join(
        tag + b"\7\0" + owner for tag, owner in
        [(b"\1\0", b"\xff" * 4)] + [(b"\2\0", (1000 + n).to_bytes(4, "little")) for n in range(60)]
        + [(b"\4\0", b"\xff" * 4), (b"\x10\0", b"\xff" * 4), (b"\x20\0", b"\xff" * 4)])
    ways = {
        "mkdir": lambda n: os.mkdir(f"{here}/directory{n}"),
        "symlink": lambda n: os.symlink("t" * 1000, f"{here}/link{n}"),
        "setxattr": lambda n: os.setxattr(f"{here}/file{n}", "user.large", bytes([n]) * 2000),
        "access list": lambda n: os.setxattr(f"{here}/file{n}", "system.posix_acl_access", acl),
        "link": lambda n: os.link(f"{here}/direct", f"{here}/names/{long}{n}"),
        "create": lambda n: os.close(os.open(f"{here}/names/{long}c{n}", os.O_WRONLY | os.O_CREAT)),
        "rename": lambda n: os.rename(f"{here}/file{n}", f"{here}/moved/{long}{n}"),
        "direct": direct, "buffered": buffered, "mapped": mapped, "allocate": allocate, "copy": copy,
    }
    print(json.dumps({way: count(one, 40 if way in ("link", "create") else TRIES) for way, one in ways.items()}))
"#;

/// The users who try, and whether they may use the root-reserved blocks.
const USERS: [(&str, bool); 3] = [("ordinary", false), ("member", true), ("root", true)];

fn run(what: &str, place: &Path, more: &[&str]) -> String {
    judge::run("python3", ["-c", PROGRAM, what, place.to_str().unwrap()].iter().chain(more))
}

/// The number of successful operations of each user on a volume that an ordinary user has filled.
fn counts(place: &Path) -> Vec<Value> {
    run("prepare", place, &USERS.map(|(user, _)| user));
    let steps = std::iter::once("fill").chain(USERS.map(|(user, _)| user));
    steps.map(|step| serde_json::from_str(&run(step, place, &[])).unwrap()).collect()
}

/// Asserts that operations that allocate blocks succeeded only for users who may use root-reserved
/// blocks.
fn assert_kept(found: &[Value]) {
    for ((user, reserved), tried) in USERS.iter().zip(&found[1..]) {
        for way in ["mkdir", "symlink", "setxattr", "direct", "mapped", "allocate"] {
            assert_eq!(tried[way], if *reserved { 20 } else { 0 }, "{user}: {way}");
        }
    }
}

/// Fills a volume through a mapping, as an ordinary user. Returns the number of root-reserved
/// blocks before and of free blocks afterwards.
const MAP: &str = r#"
import errno, mmap, os, sys
place = sys.argv[1]
before = os.statvfs(place)
os.setgroups([]), os.setresgid(65534, 65534, 65534), os.setresuid(65534, 65534, 65534)
size, piece = 512 << 20, 1 << 20
file = os.open(f"{place}/mapped", os.O_RDWR | os.O_CREAT)
os.ftruncate(file, size)
memory = mmap.mmap(file, size)
for at in range(0, size, piece):
    memory[at:at + piece] = b"x" * piece
try:
    memory.flush()
except OSError as error:
    assert error.errno == errno.ENOSPC, error
    print(before.f_bfree - before.f_bavail, os.statvfs(place).f_bfree)
"#;

/// Far from full the kernel does not ask before writes. Near full, pages of a write(2) in the
/// kernel's cache must be told from pages of a mapping.
#[test]
fn a_mapping_does_not_reach_the_reserve_from_afar() {
    let mut volume = Volume::make(512 << 20, &["-b", "4096", "-m", "20"]);
    volume.mount("");
    let root = volume.root();
    std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o777)).unwrap();
    let told = judge::run("python3", ["-c", MAP, root.to_str().unwrap()]);
    let numbers: Vec<u64> = told.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let [kept, free] = numbers[..] else { panic!("msync failed: {told}") };
    // Pages that arrive while the kernel's dirty data is fetched may be of any user.
    let most = kept - kept / 8;
    assert!(kept > 25_000 && free > most, "{free} blocks are free, of {kept} that were kept");
    volume.unmount();
}

#[test]
fn f2fs_reserves_blocks_for_the_users_of_the_mount_options() {
    let mut volume = Volume::f2fs(100 << 20, "reserve_root=1200,resgid=88");
    let found = counts(&volume.root());
    volume.unmount();
    assert_kept(&found);
}

#[test]
fn root_reserved_blocks_go_to_the_same_users_as_in_the_kernel() {
    let mut volume = Volume::make(64 << 20, &["-b", "4096", "-m", "20"]);
    judge::run("tune2fs", [OsStr::new("-g"), "88".as_ref(), volume.image().as_os_str()]);
    let copy = volume.outside("copy");
    std::fs::copy(volume.image(), &copy).unwrap();
    // Linux 6.18 takes the superblock's user for its group.
    let kernel = KernelMount::new(&copy, "resgid=88");
    let expected = counts(kernel.path());
    kernel.unmount();
    volume.mount("");
    let found = counts(&volume.root());
    volume.unmount();
    assert_eq!(found, expected, "what succeeded here, and on the kernel's ext4");
    assert_eq!(found[0]["bavail"], 0);
    assert_kept(&found);
}
