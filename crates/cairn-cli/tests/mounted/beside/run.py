"""One seeded sequence of operations on a mounted file system, by root and by an ordinary user.

    run.py DIRECTORY SEED STEPS FLAGS

FLAGS (a number) are those that chattr sets now and then. It prints a line of JSON for each operation: what was asked, what came back, and what stat says then. Times are told as which of them
changed (a tick lies between operations), and whether what changed is later than everything before.
"""
import ctypes, errno, fcntl, hashlib, json, mmap, os, random, struct, sys, time

ROOT, SEED, STEPS, SETTABLE = os.fsencode(sys.argv[1]), *(int(argument) for argument in sys.argv[2:5])
NOBODY = 65534
TICK = 0.012
LIBC = ctypes.CDLL(None, use_errno=True)
GETFLAGS, SETFLAGS, GETVERSION = 0x80086601, 0x40086602, 0x80087601
IMMUTABLE, APPEND, NODUMP = 0x10, 0x20, 0x40
KEEP, PUNCH, ZERO, COLLAPSE, INSERT = 1, 2, 0x10, 8, 0x20
CAPABILITY = struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0)
FLAGS = {"r": os.O_RDONLY, "w": os.O_WRONLY, "rw": os.O_RDWR, "a": os.O_WRONLY | os.O_APPEND, "t": os.O_WRONLY | os.O_TRUNC,
         "d": os.O_RDWR | os.O_DIRECT}


def check(result):
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def page_aligned(data):
    memory = mmap.mmap(-1, max(len(data), 4096))
    memory[:len(data)] = data
    return memory


def address(memory):
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def acl(user, permissions):
    entry = lambda tag, perm, who=0xffffffff: struct.pack("<HHI", tag, perm, who)
    return (struct.pack("<I", 2) + entry(1, 7) + entry(2, permissions, user) + entry(4, 5) + entry(0x10, 7) + entry(0x20, 4))


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("handle", ctypes.c_ubyte * 128)]


class Worker:
    """What one user does, in a process of that user."""

    def __init__(self):
        self.slots = {}
        self.handles = {}

    def path(self, name):
        return os.path.join(ROOT, os.fsencode(name))

    def make(self, name, mode):
        os.close(os.open(self.path(name), os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))

    def node(self, name, kind, mode):
        os.mknod(self.path(name), {"fifo": 0o010000, "char": 0o020000}[kind] | mode, os.makedev(1, 3) if kind == "char" else 0)

    def mkdir(self, name, mode):
        os.mkdir(self.path(name), mode)

    def remove(self, name):
        (os.rmdir if os.path.isdir(self.path(name)) else os.unlink)(self.path(name))

    def rename(self, name, to, flags):
        check(LIBC.renameat2(-100, self.path(name), -100, self.path(to), flags))

    def link(self, name, to):
        os.link(self.path(name), self.path(to))

    def chmod(self, name, mode):
        os.chmod(self.path(name), mode)

    def chown(self, name, uid, gid):
        os.chown(self.path(name), uid, gid)

    def truncate(self, name, size):
        os.truncate(self.path(name), size)

    def touch(self, name, what):
        now, omit = (1 << 30) - 1, (1 << 30) - 2
        times = {"now": (0, now, 0, now), "atime": (0, now, 0, omit), "mtime": (0, omit, 0, now), "set": (86400, 5, 172800, 7),
                 "old": (-86400 * 365, 0, -86400 * 365, 0)}[what]
        check(LIBC.utimensat(-100, self.path(name), struct.pack("<4q", *times), 0))

    def open(self, name, slot, how):
        self.close(slot)
        self.slots[slot] = os.open(self.path(name), FLAGS[how])

    def close(self, slot):
        if slot in self.slots:
            os.close(self.slots.pop(slot))

    def fd(self, slot):
        if slot not in self.slots:
            raise OSError(errno.EBADF, "no such slot")
        return self.slots[slot]

    def write_slot(self, slot, offset, length, byte):
        # Multiples of a page: direct slots take nothing else.
        return os.pwritev(self.fd(slot), [page_aligned(bytes([byte]) * length)], offset)

    def fsync_slot(self, slot):
        os.fsync(self.fd(slot))

    def write(self, name, how, offset, length, byte):
        fd = os.open(self.path(name), FLAGS[how])
        try:
            done = os.pwritev(fd, [memoryview(page_aligned(bytes([byte]) * length))[:length]], offset)
            os.fsync(fd)
            return done
        finally:
            os.close(fd)

    def read(self, name):
        fd = os.open(self.path(name), os.O_RDONLY)
        try:
            return hashlib.md5(os.pread(fd, 1 << 20, 0)).hexdigest()
        finally:
            os.close(fd)

    def map(self, name, offset, byte):
        fd = os.open(self.path(name), os.O_RDWR)
        try:
            size = os.fstat(fd).st_size
            if size <= offset:
                return "too small"
            with mmap.mmap(fd, size) as memory:
                memory[offset] = byte
                memory.flush()
        finally:
            os.close(fd)

    def allocate(self, name, mode, offset, length):
        fd = os.open(self.path(name), os.O_RDWR)
        try:
            check(LIBC.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)))
        finally:
            os.close(fd)

    def copy(self, name, to, length):
        source, target = os.open(self.path(name), os.O_RDONLY), None
        try:
            target = os.open(self.path(to), os.O_WRONLY)
            return os.copy_file_range(source, target, length, 0, 0)
        finally:
            os.close(source)
            if target is not None:
                os.close(target)

    def aio(self, name, pages, byte):
        """Direct writes in flight while the same pages are read; then what a reader finds."""
        fd, reader = os.open(self.path(name), os.O_RDWR | os.O_DIRECT), os.open(self.path(name), os.O_RDONLY)
        try:
            size = os.fstat(fd).st_size // 4096 * 4096
            count = min(pages, size // 4096)
            context = ctypes.c_ulong(0)
            check(LIBC.syscall(206, 64, ctypes.byref(context)))
            memory = page_aligned(bytes([byte]) * 4096)
            for round in range(4):
                blocks = [ctypes.create_string_buffer(struct.pack("<QIIHhIQQqQII", 0, 0, 0, 1, 0, fd, address(memory), 4096,
                                                                  at * 4096, 0, 0, 0), 64) for at in range(count)]
                pointers = (ctypes.c_void_p * max(count, 1))(*[ctypes.addressof(block) for block in blocks])
                if count:
                    check(LIBC.syscall(209, context, count, pointers))
                os.pread(reader, size, 0)
                events = ctypes.create_string_buffer(32 * 64)
                if count:
                    check(LIBC.syscall(208, context, count, count, events, None))
                stale = any(byte != found for found in os.pread(reader, count * 4096, 0))
                if stale:
                    return "stale"
            LIBC.syscall(207, context)
            return count
        finally:
            os.close(fd)
            os.close(reader)

    def setxattr(self, name, attribute, value, flags):
        os.setxattr(self.path(name), attribute, bytes.fromhex(value), flags)

    def getxattr(self, name, attribute):
        return os.getxattr(self.path(name), attribute).hex()

    def removexattr(self, name, attribute):
        os.removexattr(self.path(name), attribute)

    def ioctl_int(self, name, command, value):
        fd = os.open(self.path(name), os.O_RDONLY | os.O_NONBLOCK)
        try:
            buffer = bytearray(struct.pack("<i", value) + b"\xa5" * 28)
            fcntl.ioctl(fd, command, buffer, True)
            behind = [at for at in range(4, 32) if buffer[at] != 0xa5]
            return {"value": struct.unpack_from("<i", buffer)[0] & (IMMUTABLE | APPEND | NODUMP), "written behind": behind}
        finally:
            os.close(fd)

    def flags(self, name, flags):
        fd = os.open(self.path(name), os.O_RDONLY | os.O_NONBLOCK)
        try:
            buffer = bytearray(8)
            fcntl.ioctl(fd, GETFLAGS, buffer, True)
            old = struct.unpack_from("<i", buffer)[0]
            fcntl.ioctl(fd, SETFLAGS, struct.pack("<ii", old & ~(IMMUTABLE | APPEND | NODUMP) | flags, 0))
        finally:
            os.close(fd)

    def handle(self, name):
        handle, mount = Handle(bytes=128), ctypes.c_int()
        check(LIBC.name_to_handle_at(-100, self.path(name), ctypes.byref(handle), ctypes.byref(mount), 0))
        self.handles[name] = handle

    def by_handle(self, name, drop):
        if name not in self.handles:
            return "none"
        if drop:
            os.sync()
            with open("/proc/sys/vm/drop_caches", "w") as caches:
                caches.write("3")
        mount = os.open(ROOT, os.O_RDONLY)
        try:
            fd = check(LIBC.open_by_handle_at(mount, ctypes.byref(self.handles[name]), os.O_RDONLY))
            found = os.fstat(fd)
            os.close(fd)
            return [found.st_mode, found.st_size]
        finally:
            os.close(mount)

    def run(self, operation, arguments):
        try:
            return getattr(self, operation)(*arguments)
        except OSError as error:
            return errno.errorcode[error.errno]


class User:
    """A worker in a process of another user, spoken to through pipes."""

    def __init__(self):
        asked, ask = os.pipe()
        told, tell = os.pipe()
        if os.fork() == 0:
            os.close(ask), os.close(told)
            os.setgroups([]), os.setresgid(NOBODY, NOBODY, NOBODY), os.setresuid(NOBODY, NOBODY, NOBODY)
            worker = Worker()
            os.umask(0o022)
            with os.fdopen(asked) as asked, os.fdopen(tell, "w") as tell:
                for line in asked:
                    print(json.dumps(worker.run(*json.loads(line))), file=tell, flush=True)
            os._exit(0)
        os.close(asked), os.close(tell)
        self.ask, self.told = os.fdopen(ask, "w"), os.fdopen(told)

    def run(self, operation, arguments):
        print(json.dumps([operation, arguments]), file=self.ask, flush=True)
        return json.loads(self.told.readline())


NAMES = ["f0", "f1", "f2", "f3", "d0", "d1", "n0"]
FILES = NAMES[:4]


def choose(rng):
    """An operation and its arguments. Files are wanted more often than the rest."""
    name = rng.choice(NAMES + 2 * FILES)
    file = rng.choice(FILES)
    byte = rng.randrange(1, 256)
    place = rng.randrange(0, 20000)
    mode = rng.choice([0o4777, 0o6777, 0o2777, 0o2767, 0o4755, 0o644, 0o666, 0o777, 0o2755])
    page = 4096 * rng.randrange(0, 8)
    # Often a page of the file, sometimes where no file can reach.
    start = rng.choice([page] * 6 + [1 << 44, 1 << 50, (1 << 63) - 8192, (1 << 63) - 4096])
    return rng.choice([
        lambda: ("make", [file, rng.choice([0o666, 0o4777, 0o2755])]),
        lambda: ("make", [file, 0o666]),
        lambda: ("node", ["n0", rng.choice(["fifo", "char"]), 0o666]),
        lambda: ("mkdir", [rng.choice(["d0", "d1"]), rng.choice([0o777, 0o2777])]),
        lambda: ("remove", [name]) if rng.randrange(3) == 0 else ("chmod", [name, mode]),
        lambda: ("rename", [name, rng.choice(NAMES), rng.choice([0, 0, 1, 2])]) if rng.randrange(3) == 0 else ("chmod", [name, mode]),
        lambda: ("link", [file, rng.choice(FILES)]),
        lambda: ("chmod", [name, mode]),
        lambda: ("chmod", [file, mode]),
        # Not with neither: of that the kernel's FUSE says nothing that would tell it from other changes.
        lambda: ("chown", [name, *rng.choice([(-1, 0), (-1, NOBODY), (0, -1), (NOBODY, -1), (0, NOBODY), (NOBODY, NOBODY), (0, 0)])]),
        lambda: ("truncate", [file, rng.choice([0, 100, 9000, 20000])]),
        lambda: ("touch", [name, rng.choice(["now", "atime", "mtime", "set", "old"])]),
        lambda: ("open", [file, rng.randrange(3), rng.choice(list(FLAGS))]),
        lambda: ("write_slot", [rng.randrange(3), page, 4096, byte]),
        lambda: ("write_slot", [rng.randrange(3), page, 4096, byte]),
        lambda: ("fsync_slot", [rng.randrange(3)]),
        lambda: ("close", [rng.randrange(3)]),
        lambda: ("write", [file, rng.choice(["w", "a", "t", "rw"]), place, rng.randrange(1, 9000), byte]),
        lambda: ("write", [file, rng.choice(["w", "rw"]), place, 100, byte]),
        lambda: ("write", [file, "d", page, 4096, byte]),
        lambda: ("read", [file]),
        lambda: ("map", [file, place, byte]),
        lambda: ("allocate", [file, rng.choice([0, KEEP, PUNCH | KEEP, ZERO, ZERO | KEEP]), start, 8192]),
        lambda: ("copy", [file, rng.choice(FILES), 8192]),
        lambda: ("aio", [file, 4, byte]),
        lambda: ("setxattr", [name, "user.a", "00" * rng.randrange(0, 60), rng.randrange(3)]),
        lambda: ("setxattr", [file, "security.capability", CAPABILITY.hex(), 0]),
        lambda: ("setxattr", [name, "system.posix_acl_access", acl(rng.choice([1, NOBODY]), rng.randrange(8)).hex(), 0]),
        lambda: ("getxattr", [name, rng.choice(["user.a", "security.capability", "system.posix_acl_access"])]),
        lambda: ("removexattr", [name, rng.choice(["user.a", "security.capability", "system.posix_acl_access"])]),
        lambda: ("flags", [name, rng.choice([0, IMMUTABLE, APPEND, NODUMP]) & SETTABLE]),
        lambda: ("flags", [name, 0]),
        lambda: ("ioctl_int", [name, GETFLAGS, 0]),
        lambda: ("handle", [name]),
        lambda: ("by_handle", [name, rng.randrange(8) == 0]),
    ])()


def state(name):
    """What stat says of a name, without times; and its times."""
    path = os.path.join(ROOT, name.encode())
    try:
        found = os.lstat(path)
    except OSError as error:
        return errno.errorcode[error.errno], None
    attributes = sorted(os.listxattr(path, follow_symlinks=False))
    size = found.st_size if not os.path.isdir(path) else None
    shown = [oct(found.st_mode), found.st_uid, found.st_gid, found.st_nlink, size, attributes]
    return shown, (found.st_ino, found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns)


def compare(before, after, latest):
    """Which times changed, and whether those that did are new."""
    if before is None or after is None or before[0] != after[0]:
        return None
    changed = "".join(letter for letter, old, new in zip("amc", before[1:], after[1:]) if old != new)
    return changed if after[3] == before[3] or after[3] >= latest else changed + " older than what was before"


def main():
    os.umask(0o022)
    os.chmod(ROOT, 0o777)
    rng = random.Random(SEED)
    users = {"root": Worker(), "nobody": User()}
    # Everything is there at first.
    for name in FILES:
        users["root"].run("make", [name, 0o777])
        users["root"].run("write", [name, "w", 0, 16384, 7])
    latest = 0
    for step in range(STEPS):
        user = rng.choice(["root", "nobody"])
        operation, arguments = choose(rng)
        names = [argument for argument in arguments if argument in NAMES]
        before = {name: state(name) for name in NAMES}
        time.sleep(TICK)
        result = users[user].run(operation, arguments)
        after = {name: state(name) for name in NAMES}
        times = {name: compare(before[name][1], after[name][1], latest) for name in NAMES}
        latest = max([latest] + [times[3] for _, times in after.values() if times])
        print(json.dumps({"step": step, "who": user, "what": operation, "arguments": arguments, "result": result,
                          "stat": {name: after[name][0] for name in NAMES},
                          "times": {name: times[name] for name in NAMES if times[name]}}))


main()
