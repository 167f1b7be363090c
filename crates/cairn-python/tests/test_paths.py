"""Paths: beside pathlib's own over a directory of the system, where that has the same calls."""

import errno
import inspect
import os
import pathlib
import stat
import sys

import cairn
import pytest

NAMES = ["a/b/c.txt", "a/b/d.py", "a/e.txt", "f.txt", "g/.hidden", "g/h/i/j.txt"]
PATTERNS = ["*", "*.txt", "a/*", "**/*.txt", "**/b/*", "g/**/*.txt", "*/b/c.*", "[fg]*", "a/e.txt",
            "none/*", "?/?.txt", "*/", "**/", "a/*/", "**/i/", "a/e.txt/"]


def fill(root):
    for name in NAMES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "link").symlink_to("a/b")


def test_trees_are_those_of_pathlib(volume, tmp_path):
    here, there = tmp_path / "tree", volume / "tree"
    here.mkdir()
    there.mkdir()
    fill(here)
    fill(there)
    for pattern in PATTERNS:
        expected = sorted(str(path.relative_to(here)) for path in here.glob(pattern))
        found = sorted(str(path.relative_to(there)) for path in there.glob(pattern))
        assert found == expected, pattern
    assert sorted(map(str, there.rglob("*.py"))) == ["/tree/a/b/d.py"]
    walked = sorted((str(d.relative_to(there)), sorted(ds), sorted(fs)) for d, ds, fs in there.walk())
    expected = []
    for d, ds, fs in os.walk(here):
        links = [name for name in ds if os.path.islink(os.path.join(d, name))]
        own = sorted(set(ds) - set(links))
        expected.append((os.path.relpath(d, here), own, sorted(fs + links)))
    assert walked == sorted(expected)
    for name in NAMES + ["a", "link", "none", "f.txt/below"]:
        for call in ["exists", "is_dir", "is_file", "is_symlink", "is_fifo"]:
            assert getattr(there / name, call)() == getattr(here / name, call)(), (name, call)
    assert (there / "link" / "c.txt").read_text() == "a/b/c.txt"
    assert (there / "link").readlink() == "a/b"


def test_trees_may_be_of_any_depth(volume):
    depth = 150
    limit = sys.getrecursionlimit()
    top = volume / "top"
    # Each call must do with fewer frames than there are levels.
    sys.setrecursionlimit(len(inspect.stack()) + depth - 50)
    try:
        bottom = top.joinpath(*["d"] * depth)
        bottom.mkdir(parents=True)
        (bottom / "file").touch()
        down = [str(directory) for directory, _, _ in top.walk()]
        assert len(down) == depth + 1 and down[-1] == str(bottom)
        assert [str(directory) for directory, _, _ in top.walk(False)] == down[::-1]
        assert len(list(top.glob("**"))) == depth + 2
        assert list(top.rglob("file")) == list(top.glob("/".join(["*"] * (depth + 1)))) == [bottom / "file"]
        pruned = 0
        for _, directories, _ in top.walk():
            pruned += 1
            directories.clear()
        assert pruned == 1
        top.rmtree()
    finally:
        sys.setrecursionlimit(limit)


def test_names_are_those_of_pathlib(volume):
    pure = pathlib.PurePosixPath("/a/b.tar.gz")
    path = volume / "a" / "b.tar.gz"
    for name in ["name", "stem", "suffix", "suffixes", "parts"]:
        assert getattr(path, name) == getattr(pure, name)
    assert str(path) == str(pure) and path.parent == volume / "a" and path.match("*.gz")
    assert [str(parent) for parent in path.parents] == ["/a", "/"]
    assert path == volume.path("a", "b.tar.gz") == volume.root.joinpath("a/b.tar.gz")
    assert path.with_suffix(".x") == volume / "a/b.tar.x" and path.with_name("c") < path.with_name("d")
    assert len({path, volume / "/a//b.tar.gz"}) == 1 and str(volume / "//a") == "/a"
    assert repr(path) == "cairn.Path('/a/b.tar.gz')"
    # The system's calls must not take it for a path of theirs.
    with pytest.raises(TypeError):
        open(path)


def test_links_never_lead_to_the_system(volume):
    (volume / "up").symlink_to("../../../etc")
    (volume / "abroad").symlink_to("/etc/passwd")
    assert not (volume / "abroad").exists() and (volume / "abroad").is_symlink()
    with pytest.raises(FileNotFoundError):
        (volume / "abroad").read_text()
    (volume / "etc").mkdir()
    (volume / "up" / "passwd").write_text("the volume's")
    assert (volume / "abroad").read_text() == "the volume's"
    (volume / "loop").symlink_to("loop")
    assert not (volume / "loop").exists()


def test_names_are_any_bytes(volume):
    name = b"na\xff\xc3me"
    path = volume.root / name.decode("utf-8", "surrogateescape")
    path.write_text("x")
    assert bytes(path) == b"/" + name and volume.path(name).read_text() == "x"
    assert path.name in volume.listdir()
    with pytest.raises(FileNotFoundError):
        (volume.path(name + b"\xfe")).stat()
    with pytest.raises(ValueError, match="null"):
        (volume / "a\0b").exists()


def test_attributes(volume):
    path = volume / "file"
    path.touch()
    with pytest.raises(FileExistsError):
        path.touch(exist_ok=False)
    path.chmod(0o4711)
    path.chown(7, 8)
    path.utime(ns=(1_500_000_000_000_000_001, -1_999_999_999))
    found = path.stat()
    assert isinstance(found, os.stat_result) and stat.S_ISREG(found.st_mode)
    assert stat.filemode(found.st_mode) == "-rws--x--x" and (found.st_uid, found.st_gid) == (7, 8)
    assert (found.st_atime_ns, found.st_mtime_ns) == (1_500_000_000_000_000_001, -1_999_999_999)
    assert found.st_mtime == pytest.approx(-2) and found[8] == -2 and found.st_blocks == 0
    path.utime((5, 6.5))
    assert path.stat().st_mtime == 6.5
    path.setxattr("user.a", b"value")
    assert path.listxattr() == ["user.a"] and path.getxattr("user.a") == b"value"
    path.removexattr("user.a")
    with pytest.raises(OSError, match="no attribute user.a"):
        path.getxattr("user.a")
    (volume / "fifo").mknod(stat.S_IFIFO | 0o600)
    (volume / "null").mknod(stat.S_IFCHR | 0o666, 1, 3)
    assert (volume / "fifo").is_fifo() and (volume / "null").is_char_device()
    assert (volume / "null").stat().st_rdev == os.makedev(1, 3)


def test_names_come_and_go(volume):
    (volume / "a").write_text("a")
    (volume / "b").hardlink_to(volume / "a")
    assert (volume / "a").stat().st_nlink == 2
    assert (volume / "b").rename(volume / "c").read_text() == "a"
    (volume / "a").replace("/c")
    (volume / "c").unlink()
    (volume / "c").unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        (volume / "c").unlink()
    (volume / "d/e/f").mkdir(parents=True)
    (volume / "d/e/f").mkdir(parents=True, exist_ok=True)
    with pytest.raises(OSError, match="not empty"):
        (volume / "d").rmdir()
    (volume / "d/link").symlink_to("..")
    (volume / "d").rmtree()
    assert not (volume / "d").exists() and volume.root.exists()
    volume.root.mkdir(exist_ok=True)


def test_a_path_of_another_volume_is_refused(volume, tmp_path):
    image = tmp_path / "other.img"
    cairn.mkfs(image, "ext4", 16 << 20)
    with cairn.open(image, "rw") as other:
        (volume / "source").write_text("source")
        (volume / "precious").write_text("precious")
        (other / "precious").write_text("other")
        for call in [(volume / "source").rename, (volume / "source").replace,
                     (volume / "link").hardlink_to]:
            with pytest.raises(OSError) as refused:
                call(other / "precious")
            assert refused.value.errno == errno.EXDEV and refused.value.filename2 == "/precious"
        for call in [(volume / "source").relative_to, (volume / "source").joinpath,
                     (volume / "link").symlink_to, volume.path, volume.open, volume.listdir]:
            with pytest.raises(ValueError, match="another volume"):
                call(other / "precious")
        assert (volume / "precious").read_text() == "precious"
        assert (other / "precious").read_text() == "other"
    with pytest.raises(ValueError, match="closed"), other:
        pass


def test_a_slash_at_the_end_is_a_directory_s(volume):
    (volume / "a" / "b").mkdir(parents=True)
    (volume / "a" / "file").touch()
    (volume / "link").symlink_to("a")
    native = volume._native
    for call in [lambda: native.unlink(b"/link/"), lambda: native.rename(b"/a/file", b"/new/")]:
        with pytest.raises(NotADirectoryError):
            call()
    with pytest.raises(FileNotFoundError):
        native.link(b"/a/file", b"/new/")
    native.rename(b"/a/b/", b"/a/c/")


def test_owners_and_devices(volume):
    path = volume / "device"
    for major, minor in [(4096, 0), (0, 1 << 20)]:
        with pytest.raises(ValueError, match="4095:1048575"):
            path.mknod(0o20600, major, minor)
    path.mknod(0o20600, 4095, 1048575)
    assert path.lstat().st_rdev == os.makedev(4095, 1048575)
    path.chown(5, 6)
    path.chown(-1, 7)
    assert (path.lstat().st_uid, path.lstat().st_gid) == (5, 7)


def test_what_is_wrong_is_refused_before_anything_changes(image):
    with cairn.open(image, "rw") as volume:
        path = volume / "file"
        path.write_bytes(b"kept")
        with pytest.raises(TypeError):
            path.write_bytes("text")
        for name in None, 5:
            with pytest.raises(TypeError):
                volume.open(name, "w")
        with pytest.raises(OSError):
            volume.root.rmtree()
        assert path.read_bytes() == b"kept"
        path.chown(7, 8)
        path.chown(-1, 9)
        path.utime((1, 1))
        path.touch()
        found = path.stat()
        assert (found.st_uid, found.st_gid) == (7, 9) and found.st_mtime > 1


#: Calls of the system's paths that have no meaning on a volume.
WITHOUT = {
    "as_uri", "copy", "copy_into", "cwd", "expanduser", "from_uri", "full_match", "group", "home", "info",
    "is_junction", "is_reserved", "lchmod", "link_to", "move", "move_into", "owner", "parser",
    "with_segments",
}


def test_the_calls_are_those_of_pathlib():
    theirs = {name for name in dir(pathlib.PosixPath) if not name.startswith("_")}
    assert theirs - {name for name in dir(cairn.Path)} <= WITHOUT


def test_links_are_resolved_as_by_pathlib(volume, tmp_path):
    here, there = tmp_path / "tree", volume / "tree"
    for root in here, there:
        root.mkdir()
        fill(root)
        for target, name in [("../g/h", "a/over"), ("loop2", "loop"), ("loop", "loop2"), ("none/x", "dangling"),
                             ("f.txt/..", "through")]:
            (root / name).symlink_to(target)
    names = ["", "a", "link", "link/c.txt", "link/../e.txt", "a/over/i", "a/over/../.hidden", "dangling",
             "dangling/../y", "none/../a", "f.txt", "../tree/a", "through"]
    for name in names:
        expected = (here / name).resolve().relative_to(here.resolve())
        assert (there / name).resolve().relative_to(there) == expected, name
    for name in names + ["loop", "loop/x", "f.txt/x"]:
        results = []
        for root in here, there:
            try:
                results.append((root / name).resolve(strict=True).relative_to(root.resolve()))
            except (OSError, RuntimeError) as error:
                # Before 3.13 a loop is a RuntimeError.
                results.append(getattr(error, "errno", errno.ELOOP))
        assert results[0] == results[1], name
    for one, two in [("link", "a/b"), ("a", "g"), ("a/over/i", "g/h/i"), ("f.txt", "f.txt")]:
        assert (there / one).samefile(there / two) == (here / one).samefile(here / two)
    assert (volume / "abroad").symlink_to("/tree/../../a") is None
    assert str((volume / "abroad").resolve()) == "/a"
    assert volume.root.is_mount() and not there.is_mount() and not (there / "none").is_mount()


def test_names_are_strings_or_bytes(volume):
    path = volume / b"a" / b"\xff.tar.gz"
    assert bytes(path) == b"/a/\xff.tar.gz" == bytes(volume / os.fsdecode(b"a/\xff.tar.gz"))
    assert bytes(path.with_name(b"\xfe")) == b"/a/\xfe" and path.with_stem("x").name == "x.gz"
    assert path.joinpath(b"b", pathlib.PurePosixPath("c")).parts[-2:] == ("b", "c")
    assert path.is_relative_to("/a") and path.is_relative_to(b"a") and not path.is_relative_to("/b")
    assert path.is_absolute() and path.absolute() == path and path.as_posix() == str(path)
    assert (path.anchor, path.root, path.drive) == ("/", "/", "")
    for wrong in 5, None:
        with pytest.raises(TypeError):
            volume / wrong
