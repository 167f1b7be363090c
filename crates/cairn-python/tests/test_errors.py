"""The numbers of errors, and the files that they name."""

import errno
import os
import subprocess

import cairn
import pytest
from conftest import SIZE, judge

MODES = ["r", "rw", "ephemeral"]


@pytest.fixture
def host(tmp_path):
    """A directory with a read-only filesystem and one without room."""
    (tmp_path / "file").write_bytes(b"x" * 9000)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "directory").mkdir()
    mounted = []
    for name, options in [("ro", "ro"), ("full", "size=64k")]:
        (tmp_path / name).mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", tmp_path / name], check=True)
        mounted.append(tmp_path / name)
    yield tmp_path
    for point in mounted:
        subprocess.run(["umount", point], check=True)


def refused(number, filename, call, *arguments, **named):
    with pytest.raises(OSError) as error:
        call(*arguments, **named)
    assert error.value.errno == number, (call, arguments, error.value)
    assert os.fspath(error.value.filename) == os.fspath(filename), (call, arguments)
    assert "--" not in error.value.strerror, error.value


@pytest.mark.parametrize(
    "name, opened, made",
    [
        ("none/image", errno.ENOENT, errno.ENOENT),
        ("file/image", errno.ENOTDIR, errno.ENOTDIR),
        ("loop", errno.ELOOP, errno.ELOOP),
        ("ro/image", errno.ENOENT, errno.EROFS),
        ("full/image", errno.ENOENT, errno.ENOSPC),
        ("n" * 300, errno.ENAMETOOLONG, errno.ENAMETOOLONG),
    ],
)
def test_paths_of_the_host(host, name, opened, made):
    path = host / name
    for mode in MODES:
        refused(opened, path, cairn.open, path, mode)
    refused(opened, path, cairn.check, path)
    for format in ["ext4", "f2fs"]:
        refused(made, path, cairn.mkfs, path, format, SIZE)
        assert not os.path.lexists(path) or path.is_symlink()


def test_images_that_cannot_be_made(host):
    for format in ["ext4", "f2fs"]:
        refused(errno.EINVAL, host / "huge", cairn.mkfs, host / "huge", format, 2**64 - 1)
        # Some hosts take such a file; then no format does.
        with pytest.raises(OSError) as error:
            cairn.mkfs(host / "huge", format, 2**62)
        assert error.value.errno in (errno.EFBIG, errno.EINVAL)
        refused(errno.EINVAL, host / "huge", cairn.mkfs, host / "huge", format)
        refused(errno.EEXIST, host / "file", cairn.mkfs, host / "file", format, SIZE)
        refused(errno.EISDIR, host / "directory", cairn.mkfs, host / "directory", format, SIZE)
    assert not (host / "huge").exists()


def test_an_ordinary_user(image):
    image.chmod(0o600)
    os.seteuid(65534)
    try:
        refused(errno.EACCES, image, cairn.open, image)
        refused(errno.EACCES, image, cairn.check, image)
        refused(errno.EACCES, image.parent / "new", cairn.mkfs, image.parent / "new", size=SIZE)
    finally:
        os.seteuid(0)


def test_a_null_byte(image, volume):
    calls = [cairn.open, cairn.check, cairn.mkfs]
    path = volume / "a\0b"
    calls = [(call, f"{image}\0") for call in calls]
    calls += [(call,) for call in [path.stat, path.lstat, path.touch, path.mkdir, path.unlink]]
    calls += [(call,) for call in [path.read_bytes, path.rmdir, path.readlink, path.listxattr]]
    for call, *arguments in calls:
        with pytest.raises(ValueError, match="null byte"):
            call(*arguments)


def each_call(path):
    """The calls of a path that read, change or remove what is there."""
    return [
        (path.stat,),
        (path.lstat,),
        (path.chmod, 0o600),
        (path.chown, 1, 1),
        (path.utime, (1, 1)),
        (path.getxattr, "user.a"),
        (path.listxattr,),
        (path.setxattr, "user.a", b"b"),
        (path.removexattr, "user.a"),
        (path.open,),
        (path.read_bytes,),
        (path.read_text,),
        (lambda: list(path.iterdir()),),
        (path.readlink,),
        (path.unlink,),
        (path.rmdir,),
        (path.rename, "/to"),
    ]


def makers(path):
    return [(path.mkdir,), (path.symlink_to, "target"), (path.open, "xb")]


def test_paths_of_the_volume(image, volume):
    (volume / "file").touch()
    for name, number in [
        ("/none", errno.ENOENT),
        ("/none/below", errno.ENOENT),
        ("/file/below", errno.ENOTDIR),
    ]:
        for call, *arguments in each_call(volume / name):
            refused(number, name, call, *arguments)
        if name != "/none":
            for call, *arguments in makers(volume / name):
                refused(number, name, call, *arguments)
    for call, *arguments in makers(volume / "file"):
        refused(errno.EEXIST, "/file", call, *arguments)


def test_paths_of_a_volume_that_is_only_read(image):
    with cairn.open(image) as volume:
        for call, *arguments in makers(volume / "new"):
            refused(errno.EROFS, "/new", call, *arguments)


def test_open_files_name_themselves(volume):
    with (volume / "file").open("w+b", 0) as file:
        refused(errno.EFBIG, "/file", file.truncate, 2**64 - 1)
        refused(errno.EFBIG, "/file", file.pwrite, b"b", 2**64 - 2)
        refused(errno.ENXIO, "/file", file.seek, 0, os.SEEK_DATA)
        refused(errno.EINVAL, "/file", file.seek, -1, os.SEEK_CUR)
    full = b"x" * (1 << 20)
    with (volume / "large").open("wb", 0) as file, pytest.raises(OSError) as error:
        while True:
            assert file.write(full) > 0, "no error of a full volume"
    assert (error.value.errno, error.value.filename) == (errno.ENOSPC, "/large")


PATHS = [
    b"", b"file", b"file/", b"file/below", b"dir", b"dir/", b"dir/.", b"dir/..", b"full", b"full/",
    b"none", b"none/", b"none/below", b"none/..", b"none/below/", b"to_file", b"to_file/", b"to_dir",
    b"to_dir/", b"dangling", b"dangling/", b"loop", b"loop/", b"n" * 256,
]


def lay(base, mkdir, write, symlink):
    mkdir(base)
    for name in [b"/dir", b"/full", b"/full/below"]:
        mkdir(base + name)
    write(base + b"/file")
    for target, name in [(b"file", b"/to_file"), (b"dir", b"/to_dir"), (b"no", b"/dangling"), (b"loop", b"/loop")]:
        symlink(target, base + name)


def calls_of_system():
    def opened(flags):
        return lambda path, base: os.close(os.open(path, flags, 0o644))

    return {
        "stat": lambda path, base: os.stat(path),
        "lstat": lambda path, base: os.lstat(path),
        "readlink": lambda path, base: os.readlink(path),
        "list": lambda path, base: os.listdir(path),
        "unlink": lambda path, base: os.unlink(path),
        "rmdir": lambda path, base: os.rmdir(path),
        "mkdir": lambda path, base: os.mkdir(path),
        "mknod": lambda path, base: os.mkfifo(path),
        "symlink": lambda path, base: os.symlink(b"target", path),
        "link": lambda path, base: os.link(base + b"/file", path),
        "link from": lambda path, base: os.link(path, base + b"/new", follow_symlinks=False),
        "rename": lambda path, base: os.rename(path, base + b"/new"),
        "rename file to": lambda path, base: os.rename(base + b"/file", path),
        "rename directory to": lambda path, base: os.rename(base + b"/dir", path),
        "read": opened(os.O_RDONLY | os.O_NOCTTY),
        "append": opened(os.O_WRONLY | os.O_APPEND),
        "create": opened(os.O_WRONLY | os.O_CREAT),
        "create new": opened(os.O_WRONLY | os.O_CREAT | os.O_EXCL),
        "chmod": lambda path, base: os.chmod(path, 0o700),
        "chown": lambda path, base: os.lchown(path, 1, 1),
        "utime": lambda path, base: os.utime(path, (1, 1)),
        "getxattr": lambda path, base: os.getxattr(path, "user.a", follow_symlinks=False),
        "listxattr": lambda path, base: os.listxattr(path, follow_symlinks=False),
    }


def calls_of_volume(native):
    def opened(flags):
        return lambda path, base: native.open_file(path, flags, 0o644).close()

    return {
        "stat": lambda path, base: native.stat(path, True),
        "lstat": lambda path, base: native.stat(path, False),
        "readlink": lambda path, base: native.readlink(path),
        "list": lambda path, base: native.list(path),
        "unlink": lambda path, base: native.unlink(path),
        "rmdir": lambda path, base: native.rmdir(path),
        "mkdir": lambda path, base: native.mkdir(path, 0o755),
        "mknod": lambda path, base: native.mknod(path, 0o10644, 0, 0),
        "symlink": lambda path, base: native.symlink(b"target", path),
        "link": lambda path, base: native.link(base + b"/file", path),
        "link from": lambda path, base: native.link(path, base + b"/new"),
        "rename": lambda path, base: native.rename(path, base + b"/new"),
        "rename file to": lambda path, base: native.rename(base + b"/file", path),
        "rename directory to": lambda path, base: native.rename(base + b"/dir", path),
        "read": opened("r"),
        "append": opened("a"),
        "create": opened("wc"),
        "create new": opened("wx"),
        "chmod": lambda path, base: native.chmod(path, 0o700),
        "chown": lambda path, base: native.lchown(path, 1, 1),
        "utime": lambda path, base: native.utime(path, 1, 1, True),
        "getxattr": lambda path, base: native.getxattr(path, b"user.a"),
        "listxattr": lambda path, base: native.listxattr(path),
    }


def number(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"


def test_numbers_are_those_of_the_system(tmp_path):
    """Each call, with each kind of path, beside the system's own."""
    image = tmp_path / "disk.img"
    cairn.mkfs(image, "ext4", SIZE)
    here = os.fsencode(tmp_path / "here")
    os.mkdir(here)
    differ = []
    with cairn.open(image, "rw") as volume:
        native = volume._native
        ours, theirs = calls_of_volume(native), calls_of_system()
        for at, path in enumerate(PATHS):
            for of, call in enumerate(theirs):
                name = b"/%d-%d" % (at, of)
                lay(here + name, os.mkdir, lambda path: open(path, "wb").close(), os.symlink)
                lay(name, lambda path: native.mkdir(path, 0o755),
                    lambda path: native.open_file(path, "wc", 0o644).close(), native.symlink)
                below = lambda base: base + name + b"/" + path if path else path
                expected = number(theirs[call], below(here), here + name)
                found = number(ours[call], below(b""), name)
                # A directory is not opened here, and is listed by a call of its own.
                is_opened = call == "read" and expected == "done" and found == "EISDIR"
                if found != expected and not is_opened:
                    differ.append((call, path[:20], found, expected))
    assert not differ
    judge(image, "ext4")


def test_paths_may_be_long_and_names_may_not(volume):
    native = volume._native
    (volume / "file").write_text("x")
    # The system refuses this one for its length alone.
    assert native.stat(b"/" + b"./" * 3000 + b"file", True)[0][-1] == 1
    path = volume.root
    for _ in range(20):
        path = path / ("n" * 250)
        path.mkdir()
    (path / "file").write_text("deep")
    assert len(bytes(path)) > 5000 and (path / "file").read_text() == "deep"
    refused(errno.ENAMETOOLONG, "/" + "n" * 256, (volume / ("n" * 256)).stat)
    refused(errno.ENOENT, "", volume.open, "")
    refused(errno.ENAMETOOLONG, "/link", (volume / "link").symlink_to, "t" * 4096)
    (volume / "link").symlink_to("t" * 1000)


def test_attributes_have_the_limits_of_linux(volume):
    path = volume / "file"
    path.touch()
    for name in ["", "user." + "n" * 251, "n" * 300]:
        for call, *more in [(path.setxattr, b""), (path.getxattr,), (path.removexattr,)]:
            refused(errno.ERANGE, "/file", call, name, *more)
    refused(errno.E2BIG, "/file", path.setxattr, "user.a", b"v" * (64 * 1024 + 1))
    refused(errno.EOPNOTSUPP, "/file", path.setxattr, "foo", b"")
    refused(errno.EINVAL, "/file", path.setxattr, "user.", b"")


def test_negative_numbers(volume):
    with (volume / "file").open("w+b", 0) as file:
        for call, *numbers in [(file.truncate, -1), (file.pread, -1, 0), (file.pread, 1, -1),
                               (file.pwrite, b"x", -1)]:
            refused(errno.EINVAL, "/file", call, *numbers)
        with pytest.raises(ValueError):
            file.seek(-1)
    (volume / "file").chmod(0o100600)


def test_names_of_images(tmp_path):
    image = tmp_path / "im\udcffage"
    for name in [os.fsencode(image), str(image), image]:
        cairn.mkfs(name, "ext4", SIZE, overwrite=True)
        assert cairn.check(name) == []
        with cairn.open(name) as volume:
            assert volume.image == os.fspath(name)
    for label in ["a\0b", "\0"]:
        with pytest.raises(ValueError, match="null byte"):
            cairn.mkfs(image, "ext4", SIZE, label=label, overwrite=True)
    assert cairn.check(image) == []
