"""The filesystem of fsspec, found by its protocol as pandas finds it."""

import gc
import os
import pickle
import shutil

import cairn
import fsspec
import pytest
from cairn.fsspec import CairnFileSystem


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
