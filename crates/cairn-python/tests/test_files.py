"""Files, through all layers of io."""

import ast
import functools
import io
import os
import pathlib

import cairn
import pytest


def test_text_and_bytes(volume):
    path = volume / "text"
    with path.open("w", newline="\n") as file:
        file.write("zeile ä\n" * 3)
        assert isinstance(file, io.TextIOWrapper) and file.mode == "w"
    assert [line for line in path.open()] == ["zeile ä\n"] * 3
    assert path.read_bytes() == "zeile ä\n".encode() * 3
    with path.open("a") as file:
        assert file.tell() == 27
        file.write("end")
    with path.open("r+") as file:
        assert file.readline() == "zeile ä\n"
        file.seek(0)
        file.write("Z")
    assert path.read_text().startswith("Zeile") and path.read_text().endswith("end")
    with pytest.raises(FileExistsError):
        path.open("x")
    assert path.write_text("short") == 5 and path.read_text() == "short"
    with pytest.raises(UnicodeDecodeError):
        (volume / "text").write_bytes(b"\xff")
        path.read_text()


def test_a_raw_file_is_io_s(volume):
    data = os.urandom(300_000)
    with (volume / "raw").open("w+b", 0) as file:
        assert isinstance(file, cairn.File) and isinstance(file, io.RawIOBase)
        assert file.write(memoryview(data)) == len(data)
        assert file.tell() == len(data) and file.seek(-10, io.SEEK_END) == len(data) - 10
        assert file.read() == data[-10:] and file.read(5) == b"" and file.pread(4, 7) == data[7:11]
        assert file.pwrite(bytearray(b"xy"), 1) == 2
        buffer = bytearray(4)
        file.seek(0)
        assert file.readinto(buffer) == 4 and buffer == data[:1] + b"xy" + data[3:4]
        assert file.truncate(4) == 4 and file.stat().st_size == 4
        with pytest.raises(ValueError):
            file.seek(-1)
        with pytest.raises(io.UnsupportedOperation):
            file.fileno()
        file.truncate(1 << 30)
        # A hole costs nothing, and nothing is read that is not there.
        assert file.pread(10, (1 << 30) - 5) == b"\0" * 5 and file.seek(100, os.SEEK_HOLE) >= 100
        file.sync()
        file.sync(data_only=True)
    assert file.closed
    with pytest.raises(ValueError):
        file.read()
    with (volume / "raw").open("rb", 0) as file:
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"")
        assert file.readable() and not file.writable() and file.seekable()


def test_layers_of_io_work_over_it(volume):
    data = os.urandom(500_000)
    with io.BufferedWriter((volume / "file").open("wb", 0)) as file:
        for at in range(0, len(data), 777):
            file.write(data[at : at + 777])
    with io.BufferedReader((volume / "file").open("rb", 0)) as file:
        assert file.peek(1) and file.read() == data
    with (volume / "file").open("r+b") as file:
        assert isinstance(file, io.BufferedRandom)
        file.seek(1000)
        file.write(b"changed")
        file.seek(990)
        assert file.read(17) == data[990:1000] + b"changed"


def test_modes_are_those_of_open(volume):
    for mode in ["", "rw", "z", "rbt", "bb+"]:
        with pytest.raises(ValueError):
            volume.open("/f", mode)
    with pytest.raises(ValueError):
        volume.open("/f", "w", 0)
    with pytest.raises(ValueError):
        volume.open("/f", "wb", encoding="utf-8")
    # What is refused has made no file.
    assert "f" not in volume.listdir()
    with volume.open("f", "xb", permissions=0o600) as file:
        assert file.name == "f"
    assert (volume / "f").stat().st_mode & 0o7777 == 0o600


def test_archives_are_read_from_a_volume(volume):
    import tarfile
    import zipfile

    with (volume / "a.tar.gz").open("wb") as file, tarfile.open(fileobj=file, mode="w:gz") as tar:
        tar.add(__file__, "test.py")
    with (volume / "a.zip").open("w+b") as file, zipfile.ZipFile(file, "w") as archive:
        archive.write(__file__, "test.py")
    with open(__file__, "rb") as file:
        here = file.read()
    with (volume / "a.tar.gz").open("rb") as file, tarfile.open(fileobj=file) as tar:
        assert tar.extractfile("test.py").read() == here
    with (volume / "a.zip").open("rb") as file, zipfile.ZipFile(file) as archive:
        assert archive.read("test.py") == here


def overloads():
    """Class, modes and buffering of each overload of open() in the stubs, and what it gives."""
    stub = pathlib.Path(cairn.__file__).parent / "__init__.pyi"
    body = ast.parse(stub.read_text()).body
    names = {node.target.id: node.value for node in body if isinstance(node, ast.AnnAssign)}

    def modes(node):
        if isinstance(node, ast.BinOp):
            return modes(node.left) + modes(node.right)
        if isinstance(node, ast.Name):
            return modes(names[node.id]) if node.id in names else []
        chosen = node.slice
        return [one.value for one in chosen.elts] if isinstance(chosen, ast.Tuple) else [chosen.value]

    for node in body:
        for method in node.body if isinstance(node, ast.ClassDef) else []:
            if isinstance(method, ast.FunctionDef) and method.name == "open":
                types = {argument.arg: argument.annotation for argument in method.args.args}
                buffering = -1 if isinstance(types["buffering"], ast.Name) else 0
                yield node.name, modes(types["mode"]), buffering, ast.unparse(method.returns)


def test_open_gives_what_the_stubs_say(volume):
    told = 0
    for name, modes, buffering, result in overloads():
        for at, mode in enumerate(modes):
            path = volume / f"{name}-{told}-{at}"
            if "x" not in mode:
                path.touch()
            opened = path.open if name == "Path" else functools.partial(volume.open, path)
            with opened(mode, buffering) as file:
                module = "cairn" if result == "File" else "io"
                assert f"{module}.{type(file).__name__}" == f"{module}.{result.split('.')[-1]}", mode
        told += len(modes)
    assert told == 2 * (16 + 2 * 16), told
