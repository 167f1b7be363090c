"""What an immutable and an append-only file allow.

    run.py DIRECTORY

It prints a line for each attempt: what was tried, what came back, and what became of the file (length, whether its first contents are as
they were, mode).
"""
import ctypes, errno, fcntl, mmap, os, struct, sys

ROOT = sys.argv[1]
LIBC = ctypes.CDLL(None, use_errno=True)
GETFLAGS, SETFLAGS = 0x80086601, 0x40086602
FLAGS = {"immutable": 0x10, "append": 0x20, "plain": 0}
CONTENTS = bytes(range(256)) * 40


def set_flag(path, flag):
    fd = os.open(path, os.O_RDONLY)
    buffer = bytearray(8)
    fcntl.ioctl(fd, GETFLAGS, buffer, True)
    old = struct.unpack_from("<i", buffer)[0]
    fcntl.ioctl(fd, SETFLAGS, struct.pack("<ii", old & ~0x30 | FLAGS[flag], 0))
    os.close(fd)


def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result


def opening(flags, then=lambda fd: None):
    def attempt(path):
        fd = os.open(path, flags)
        try:
            done = then(fd)
            os.fsync(fd)
            return done
        finally:
            os.close(fd)
    return attempt


def mapped(flags, protection, share=mmap.MAP_SHARED):
    def then(fd):
        with mmap.mmap(fd, 4096, share, protection) as memory:
            if protection & mmap.PROT_WRITE:
                memory[5] = 255
                memory.flush()
    return opening(flags, then)


def unset_append(fd):
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_APPEND)
    return os.pwrite(fd, b"over", 0)


def direct(fd):
    with mmap.mmap(-1, 4096) as page:
        return os.pwritev(fd, [page], 0)


R, W, RW, A = os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_APPEND
ATTEMPTS = {
    "open r": opening(R), "open w": opening(W), "open rw": opening(RW), "open a": opening(W | A), "open ra": opening(RW | A),
    "open t": opening(W | os.O_TRUNC), "open at": opening(W | A | os.O_TRUNC), "open rt": opening(R | os.O_TRUNC),
    "open c": opening(W | os.O_CREAT), "open ca": opening(W | A | os.O_CREAT), "open path": lambda path: os.close(os.open(path, os.O_PATH)),
    "append": opening(W | A, lambda fd: os.write(fd, b"added")), "append page": opening(W | A, lambda fd: os.write(fd, bytes(9000))),
    "pwrite a": opening(W | A, lambda fd: os.pwrite(fd, b"added", 0)),
    "overwrite": opening(W, lambda fd: os.pwrite(fd, b"over", 100)), "unset": opening(W | A, unset_append),
    "direct": opening(RW | os.O_DIRECT, direct), "truncate less": lambda path: os.truncate(path, 100),
    "truncate same": lambda path: os.truncate(path, os.stat(path).st_size), "truncate more": lambda path: os.truncate(path, 50000),
    "ftruncate a": opening(W | A, lambda fd: os.ftruncate(fd, 100)),
    "map r": mapped(R, mmap.PROT_READ), "map rw": mapped(RW, mmap.PROT_READ | mmap.PROT_WRITE),
    "map ra r": mapped(RW | A, mmap.PROT_READ), "map ra": mapped(RW | A, mmap.PROT_READ | mmap.PROT_WRITE),
    "map private": mapped(R, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE),
    "allocate": opening(RW | A, lambda fd: check(LIBC.fallocate(fd, 0, ctypes.c_long(50000), ctypes.c_long(4096)))),
    "keep size": opening(RW | A, lambda fd: check(LIBC.fallocate(fd, 1, ctypes.c_long(60000), ctypes.c_long(4096)))),
    "punch": opening(RW | A, lambda fd: check(LIBC.fallocate(fd, 3, ctypes.c_long(0), ctypes.c_long(4096)))),
    "chmod": lambda path: os.chmod(path, 0o600), "chown": lambda path: os.chown(path, 1, 1), "touch": lambda path: os.utime(path),
    "touch old": lambda path: os.utime(path, (1, 1)), "set": lambda path: os.setxattr(path, "user.a", b"b"),
    "link": lambda path: os.link(path, path + " link"), "rename": lambda path: os.rename(path, path + " renamed"),
    "unlink": lambda path: os.unlink(path),
}


def attempt(name, call, path):
    try:
        return call(path)
    except OSError as error:
        return errno.errorcode[error.errno]


def state(path):
    if not os.path.exists(path):
        return "gone"
    with open(path, "rb") as file:
        contents = file.read()
    return len(contents), contents[:len(CONTENTS)] == CONTENTS, oct(os.stat(path).st_mode)


for flag in ("immutable", "append"):
    for name, call in ATTEMPTS.items():
        path = f"{ROOT}/{flag} {name}"
        with open(path, "wb") as file:
            file.write(CONTENTS)
        set_flag(path, flag)
        result = attempt(name, call, path)
        print(flag, name, result, state(path))
        if os.path.exists(path):
            set_flag(path, "plain")
    # Opened before it was protected.
    for name, how, call in [("write", W, lambda fd: os.pwrite(fd, b"over", 0)), ("append", W | A, lambda fd: os.write(fd, b"added")),
                            ("truncate", W, lambda fd: os.ftruncate(fd, 10))]:
        path = f"{ROOT}/{flag} before {name}"
        with open(path, "wb") as file:
            file.write(CONTENTS)
        fd = os.open(path, how)
        set_flag(path, flag)
        print(flag, "opened before", name, attempt(name, call, fd), attempt("fsync", os.fsync, fd), state(path))
        os.close(fd)
        set_flag(path, "plain")
