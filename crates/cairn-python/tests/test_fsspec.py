"""The filesystem of fsspec, found by its protocol as pandas finds it."""

import errno
import gc
import inspect
import os
import pickle
import shutil
import sys
import time

import cairn
import fsspec
import pytest
from cairn.fsspec import CairnFileSystem
from conftest import judge


@pytest.fixture
def filesystem(image):
    filesystem = fsspec.filesystem("cairn", image=str(image), access="rw")
    yield filesystem
    filesystem.close()


def test_files_are_written_read_and_found(filesystem):
    assert isinstance(filesystem, CairnFileSystem)
    filesystem.makedirs("data/deep", exist_ok=True)
    filesystem.pipe({"/data/a.csv": b"x,y\n1,2\n", "cairn://data/deep/b.csv": b"x,y\n3,4\n"})
    assert filesystem.find("/data") == ["/data/a.csv", "/data/deep/b.csv"]
    assert filesystem.glob("data/**/*.csv") == ["/data/a.csv", "/data/deep/b.csv"]
    assert filesystem.ls("data", detail=False) == ["/data/a.csv", "/data/deep"]
    assert [entry["type"] for entry in filesystem.ls("cairn://data")] == ["file", "directory"]
    assert filesystem.info("data/a.csv")["size"] == 8 and filesystem.du("/data") == 16
    assert filesystem.cat_file("data/a.csv", -4, -1) == b"1,2" and filesystem.isdir("data")
    assert filesystem.cat("data/a.csv", start=4) == b"1,2\n"
    with filesystem.open("data/c.gz", "wt", compression="gzip") as file:
        file.write("compressed")
    with filesystem.open("cairn://data/c.gz", "rt", compression="gzip") as file:
        assert file.read() == "compressed"
    filesystem.cp("data/deep", "copy", recursive=True)
    filesystem.mv("copy/b.csv", "copy/c.csv")
    assert filesystem.cat("copy/c.csv") == b"x,y\n3,4\n" and not filesystem.exists("copy/b.csv")
    filesystem.rm("data", recursive=True)
    filesystem.rm("copy/c.csv")
    assert not filesystem.exists("data") and filesystem.ls("copy") == []
    with pytest.raises(FileNotFoundError):
        filesystem.cat("data/a.csv")
    filesystem.volume.path("l").symlink_to("copy")
    assert filesystem.info("l")["type"] == "directory" and filesystem.info("l")["islink"]


def test_trees_go_between_the_system_and_a_volume(filesystem, tmp_path):
    (tmp_path / "from" / "deep").mkdir(parents=True)
    (tmp_path / "from" / "deep" / "file").write_bytes(os.urandom(400_000))
    filesystem.put(str(tmp_path / "from"), "/tree", recursive=True)
    filesystem.get("/tree", str(tmp_path / "to"), recursive=True)
    files = [tmp_path / name / "deep" / "file" for name in ["from", "to"]]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_url_opens_with_the_image_as_an_option(image):
    with cairn.open(image, "rw") as volume:
        (volume / "a").write_text("of the image")
    with fsspec.open("cairn://a", "rt", image=str(image)) as file:
        assert file.read() == "of the image"
    read = fsspec.filesystem("cairn", image=str(image))
    # The open volume is shared, also by what a worker of dask gets.
    assert pickle.loads(pickle.dumps(read)) is read
    read.close()
    again = fsspec.filesystem("cairn", image=str(image))
    assert again is not read and again.cat("a") == b"of the image"
    again.close()
    gc.collect()


def test_an_image_stays_locked_until_its_filesystem_is_closed(image):
    fsspec.filesystem("cairn", image=str(image), access="rw").makedirs("/data")
    gc.collect()
    with pytest.raises(OSError) as busy:
        cairn.open(image, "rw")
    assert busy.value.errno == errno.EBUSY
    filesystem = fsspec.filesystem("cairn", image=str(image), access="rw")
    filesystem.pipe("/data/new.csv", b"x,y\n1,2\n")
    filesystem.close()
    with cairn.open(image, "rw") as volume:
        assert (volume / "data/new.csv").read_bytes() == b"x,y\n1,2\n"


@pytest.mark.skipif(os.environ.get("CAIRN_DEEP") != "1", reason="make deep: pandas and dask are large")
def test_pandas_and_dask_read_from_an_image(image):
    import dask.dataframe
    import pandas

    table = pandas.DataFrame({"x": range(1000), "y": [str(number) for number in range(1000)]})
    options = {"image": str(image), "access": "rw"}
    with cairn.open(image, "rw") as volume:
        (volume / "data").mkdir()
    for part in range(3):
        table.to_csv(f"cairn://data/{part}.csv", index=False, storage_options=options)
    fsspec.filesystem("cairn", **options).close()
    options = {"image": str(image)}
    read = pandas.read_csv("cairn://data/1.csv", storage_options=options, dtype={"y": str})
    assert read.equals(table)
    many = dask.dataframe.read_csv("cairn://data/*.csv", storage_options=options)
    assert int(many["x"].sum().compute()) == 3 * 499_500
    fsspec.filesystem("cairn", **options).close()


def test_trees_may_be_of_any_depth(filesystem):
    depth = 150
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + depth - 50)
    try:
        bottom = "/top" + "/d" * depth
        filesystem.makedirs(bottom)
        filesystem.pipe_file(bottom + "/file", b"12")
        assert filesystem.find("/top") == filesystem.glob("/top/**/file") == [bottom + "/file"]
        assert filesystem.du("/top") == 2 and len(list(filesystem.walk("/top"))) == depth + 1
        filesystem.rm("/top", recursive=True)
    finally:
        sys.setrecursionlimit(limit)


def test_a_walk_is_that_of_local_files(one_filesystem, tmp_path):
    fill(one_filesystem, "/walked")
    fill(local := fsspec.filesystem("file"), str(tmp_path))

    def walked(filesystem, base, path="", **more):
        found = []
        for directory, directories, files in filesystem.walk(base + path, **more):
            if isinstance(files, dict):
                assert all(entry["type"] for entry in [*files.values(), *directories.values()])
            found.append((directory[len(base) :], sorted(directories), sorted(files)))
        # Local files have no order.
        return sorted(found), [len(path) for path, _, _ in found if path.startswith("/d")]

    for more in [{}, {"maxdepth": 1}, {"maxdepth": 2}, {"topdown": False}, {"maxdepth": 2, "topdown": False},
                 {"detail": True}, {"path": "/d/f"}, {"path": "/none"}]:
        assert walked(one_filesystem, "/walked", **more) == walked(local, str(tmp_path), **more), more
    failures = []
    assert list(one_filesystem.walk("/none", on_error=failures.append)) == []
    assert [failure.errno for failure in failures] == [errno.ENOENT]
    with pytest.raises(FileNotFoundError):
        list(one_filesystem.walk("/none", on_error="raise"))
    with pytest.raises(ValueError):
        list(one_filesystem.walk("/walked", maxdepth=0))


def test_a_file_copied_onto_itself_is_refused_and_kept(filesystem):
    filesystem.pipe("/a", b"contents")
    (filesystem.volume / "b").hardlink_to("/a")
    (filesystem.volume / "c").symlink_to("a")
    for target in "/a", "/b", "/c":
        with pytest.raises(shutil.SameFileError):
            filesystem.cp_file("/a", target)
    assert filesystem.cat("/a") == b"contents"
    with pytest.raises(OSError):
        filesystem.rm("", recursive=True)
    assert filesystem.cat("/a") == b"contents"


def fill(filesystem, base):
    filesystem.makedirs(f"{base}/d/e")
    filesystem.makedirs(f"{base}/empty")
    for name in ["a", "b", "d/f", "d/e/g"]:
        filesystem.pipe(f"{base}/{name}", name.encode())
    for target, name in [("a", "to_a"), ("d", "to_d"), ("none", "dangling")]:
        filesystem.symlink(f"{base}/{target}", f"{base}/{name}")


def listed(filesystem, base):
    found = filesystem.find(base, withdirs=True, detail=False)
    return sorted(path[len(base) :] for path in found)


def outcome(filesystem, base, call):
    """The kind of the error, or what the call gives, and the tree that it leaves."""
    try:
        given = call(filesystem, base)
    except OSError as error:
        # Of those of shutil the class says it.
        given = type(error) if isinstance(error, shutil.Error) else error.errno or type(error)
        given = errno.ENOENT if given is FileNotFoundError else given
        given = errno.EEXIST if given is FileExistsError else given
    except Exception as error:
        given = type(error)
    if isinstance(given, dict):
        given = {key: given[key] for key in ["size", "type", "islink", "mode", "nlink"]}
    return given, listed(filesystem, base)


CALLS = {
    "rm": lambda fs, at: fs.rm(f"{at}/a"),
    "rm list": lambda fs, at: fs.rm([f"{at}/a", f"{at}/b"]),
    "rm directory": lambda fs, at: fs.rm(f"{at}/d"),
    "rm recursive": lambda fs, at: fs.rm(f"{at}/d", recursive=True),
    "rm recursive list": lambda fs, at: fs.rm([f"{at}/d", f"{at}/a"], recursive=True),
    "rm link to directory": lambda fs, at: fs.rm(f"{at}/to_d", recursive=True),
    "rm dangling": lambda fs, at: fs.rm(f"{at}/dangling"),
    "rm missing": lambda fs, at: fs.rm(f"{at}/none"),
    "rm list with missing": lambda fs, at: fs.rm([f"{at}/a", f"{at}/none", f"{at}/b"]),
    "rm_file directory": lambda fs, at: fs.rm_file(f"{at}/d"),
    "rmdir": lambda fs, at: fs.rmdir(f"{at}/empty"),
    "rmdir full": lambda fs, at: fs.rmdir(f"{at}/d"),
    "mv": lambda fs, at: fs.mv(f"{at}/a", f"{at}/c"),
    "mv over file": lambda fs, at: fs.mv(f"{at}/a", f"{at}/b"),
    "mv into directory": lambda fs, at: fs.mv(f"{at}/a", f"{at}/empty"),
    "mv into directory/": lambda fs, at: fs.mv(f"{at}/a", f"{at}/empty/"),
    "mv taken in directory": lambda fs, at: (fs.cp(f"{at}/a", f"{at}/d/a"), fs.mv(f"{at}/a", f"{at}/d")),
    "mv directory": lambda fs, at: fs.mv(f"{at}/d", f"{at}/moved", recursive=True),
    "mv directory into directory": lambda fs, at: fs.mv(f"{at}/d", f"{at}/empty", recursive=True),
    "mv directory into itself": lambda fs, at: fs.mv(f"{at}/d", f"{at}/d/e"),
    "mv onto itself": lambda fs, at: fs.mv(f"{at}/a", f"{at}/a"),
    "mv directory onto itself": lambda fs, at: fs.mv(f"{at}/d", f"{at}/d"),
    "mv link": lambda fs, at: fs.mv(f"{at}/to_d", f"{at}/empty"),
    "mv missing": lambda fs, at: fs.mv(f"{at}/none", f"{at}/c"),
    "mv to missing directory": lambda fs, at: fs.mv(f"{at}/a", f"{at}/none/c"),
    "cp": lambda fs, at: fs.cp(f"{at}/a", f"{at}/c"),
    "cp onto itself": lambda fs, at: fs.cp(f"{at}/a", f"{at}/a"),
    "cp list": lambda fs, at: fs.cp([f"{at}/a", f"{at}/b"], f"{at}/empty/"),
    "cp directory": lambda fs, at: fs.cp(f"{at}/d", f"{at}/c", recursive=True),
    "cp_file directory": lambda fs, at: fs.cp_file(f"{at}/d", f"{at}/c"),
    "cp_file onto directory": lambda fs, at: fs.cp_file(f"{at}/a", f"{at}/d"),
    "cp_file missing": lambda fs, at: fs.cp_file(f"{at}/none", f"{at}/c"),
    "mkdir": lambda fs, at: fs.mkdir(f"{at}/x/y"),
    "mkdir without parents": lambda fs, at: fs.mkdir(f"{at}/x/y", create_parents=False),
    "mkdir existing": lambda fs, at: fs.mkdir(f"{at}/d"),
    "mkdir over file": lambda fs, at: fs.mkdir(f"{at}/a"),
    "makedirs existing": lambda fs, at: fs.makedirs(f"{at}/d"),
    "makedirs exist_ok": lambda fs, at: fs.makedirs(f"{at}/d", exist_ok=True),
    "touch": lambda fs, at: (fs.touch(f"{at}/a"), fs.size(f"{at}/a"))[1],
    "touch keeping": lambda fs, at: (fs.touch(f"{at}/a", truncate=False), fs.size(f"{at}/a"))[1],
    "touch new": lambda fs, at: fs.touch(f"{at}/c"),
    "touch directory": lambda fs, at: fs.touch(f"{at}/d"),
    "info": lambda fs, at: fs.info(f"{at}/a"),
    "info of link": lambda fs, at: fs.info(f"{at}/to_a"),
    "info dangling": lambda fs, at: fs.info(f"{at}/dangling"),
    "info missing": lambda fs, at: fs.info(f"{at}/none"),
    "exists": lambda fs, at: [fs.exists(f"{at}/{name}") for name in ["a", "d", "dangling", "none"]],
    "lexists": lambda fs, at: [fs.lexists(f"{at}/{name}") for name in ["a", "dangling", "none"]],
    "kinds": lambda fs, at: [(fs.isdir(f"{at}/{name}"), fs.isfile(f"{at}/{name}"), fs.islink(f"{at}/{name}"))
                             for name in ["a", "d", "to_a", "to_d", "dangling", "none"]],
    "ls": lambda fs, at: sorted(path[len(at) :] for path in fs.ls(at, detail=False)),
    "ls missing": lambda fs, at: fs.ls(f"{at}/none", detail=False),
    "ls file": lambda fs, at: [path[len(at) :] for path in fs.ls(f"{at}/a", detail=False)],
    "glob": lambda fs, at: sorted(path[len(at) :] for path in fs.glob(f"{at}/d/**")),
    "du": lambda fs, at: fs.du(f"{at}/d"),
    "cat": lambda fs, at: fs.cat(f"{at}/d/f"),
    "cat list": lambda fs, at: sorted(fs.cat([f"{at}/a", f"{at}/b"]).values()),
    "cat missing": lambda fs, at: fs.cat_file(f"{at}/none"),
    "link": lambda fs, at: (fs.link(f"{at}/a", f"{at}/c"), fs.info(f"{at}/c"))[1],
    "chmod": lambda fs, at: (fs.chmod(f"{at}/a", 0o600), fs.info(f"{at}/a"))[1],
}


@pytest.fixture(scope="module")
def one_filesystem(tmp_path_factory):
    path = tmp_path_factory.mktemp("fsspec") / "disk.img"
    cairn.mkfs(path, "ext4", 16 << 20)
    filesystem = fsspec.filesystem("cairn", image=str(path), access="rw")
    yield filesystem
    filesystem.close()
    judge(path, "ext4")


@pytest.mark.parametrize("name", CALLS)
def test_calls_do_what_those_of_local_files_do(one_filesystem, tmp_path, name):
    umask = os.umask(0o022)
    try:
        results = []
        base = "/" + name.replace("/", "-")
        for filesystem, at in [(fsspec.filesystem("file"), str(tmp_path)), (one_filesystem, base)]:
            fill(filesystem, at)
            results.append(outcome(filesystem, at, CALLS[name]))
    finally:
        os.umask(umask)
    assert results[1] == results[0]


def test_several_are_moved_into_a_directory_or_to_as_many_names(filesystem):
    fill(filesystem, "/t")
    filesystem.mv(["/t/a", "/t/d"], "/t/empty", recursive=True)
    assert filesystem.cat("/t/empty/a") == b"a" and filesystem.cat("/t/empty/d/f") == b"d/f"
    filesystem.mv(["/t/empty/a", "/t/b"], ["/t/b", "/t/c"])
    assert filesystem.cat("/t/c") == b"a" and not filesystem.exists("/t/b")
    for target, error in ["/t/c", NotADirectoryError], [["/t/x", "/t/y"], ValueError]:
        with pytest.raises(error):
            filesystem.mv(["/t/c"], target)
    with pytest.raises(NotADirectoryError):
        filesystem.mv("/t/empty", "/t/c")
    # A link is no way into a directory for those who walk.
    filesystem.symlink("/t", "/t/empty/loop")
    assert filesystem.find("/t/empty") == ["/t/empty/d/e/g", "/t/empty/d/f", "/t/empty/loop"]


def test_the_time_of_creation_is_told_where_a_volume_has_it(image, filesystem):
    before = time.time()
    filesystem.touch("/new")
    filesystem.volume.path("new").utime(ns=(0, 0))
    if filesystem.volume.format == "ext4":
        made = filesystem.created("/new")
        assert before - 1 <= made.timestamp() <= time.time() + 1 and made.utcoffset().seconds == 0
        assert filesystem.modified("/new").timestamp() == 0
    else:
        # mkfs.f2fs makes no room for it unless it is asked to (inode_crtime).
        assert filesystem.volume.path("new").birthtime() is None
        with pytest.raises(NotImplementedError, match="modified"):
            filesystem.created("/new")
    with pytest.raises(FileNotFoundError):
        filesystem.created("/none")
