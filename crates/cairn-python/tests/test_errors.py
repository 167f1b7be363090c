"""The numbers of errors, and the files that they name."""

import errno
import os
import subprocess

import cairn
import pytest
from conftest import SIZE

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
