"""The fsspec filesystem of the protocol cairn://: what pandas, dask and others read from.

    import pandas

    pandas.read_csv("cairn://data/table.csv", storage_options={"image": "disk.img#2"})
"""

import datetime
import shutil
import stat

from fsspec.spec import AbstractFileSystem

from . import _volume


class CairnFileSystem(AbstractFileSystem):
    """The files of the volume in `image`, from its root on: cairn://etc/hosts is /etc/hosts.

    access is the mode of cairn.open() (fsspec.open() has a mode of its own). Filesystems of the
    same image and access share an open volume, until close(); with "rw" call close(), which reports
    what could not be written.
    """

    protocol = "cairn"
    root_marker = "/"

    def __init__(self, image, access="r", mount_options="", **more):
        super().__init__(image=image, access=access, mount_options=mount_options, **more)
        self.volume = _volume.open(image, access, mount_options=mount_options)

    @classmethod
    def _strip_protocol(cls, path):
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = str(path)
        path = path[len("cairn://") :] if path.startswith("cairn://") else path
        return "/" + path.strip("/")

    def unstrip_protocol(self, name):
        return "cairn://" + self._strip_protocol(name).lstrip("/")

    def close(self):
        """Closes the volume. The next filesystem of the same image opens it again."""
        type(self)._cache.pop(self._fs_token, None)
        self.volume.close()

    def _path(self, path):
        return self.volume.path(self._strip_protocol(path))

    def _entry(self, path):
        found, link = path.stat(follow_symlinks=False), None
        if stat.S_ISLNK(found.st_mode):
            link = path.readlink()
            if path.exists():
                found = path.stat()
        kinds = {stat.S_IFDIR: "directory", stat.S_IFREG: "file", stat.S_IFLNK: "link"}
        entry = {
            "name": str(path),
            "size": found.st_size,
            "type": kinds.get(stat.S_IFMT(found.st_mode), "other"),
            "mode": found.st_mode,
            "uid": found.st_uid,
            "gid": found.st_gid,
            "mtime": found.st_mtime,
            "ino": found.st_ino,
            "nlink": found.st_nlink,
            "islink": link is not None,
        }
        if link is not None:
            entry["destination"] = link
        return entry

    def info(self, path, **_):
        return self._entry(self._path(path))

    def ls(self, path, detail=True, **_):
        path = self._path(path)
        if path.is_dir():
            found = sorted(path.iterdir())
        else:
            path.lstat()
            found = [path]
        return [self._entry(one) for one in found] if detail else [str(one) for one in found]

    def _open(self, path, mode="rb", block_size=None, autocommit=True, **_):
        if not autocommit:
            raise NotImplementedError("a volume has no transactions of several files")
        size = block_size if isinstance(block_size, int) and block_size > 1 else -1
        return self._path(path).open(mode, size)

    def cat_file(self, path, start=None, end=None, **_):
        with self._path(path).open("rb", 0) as file:
            size = file.stat().st_size
            first, last, _ = slice(start, end).indices(size)
            return file.pread(max(last - first, 0), first)

    def pipe_file(self, path, value, mode="overwrite", **_):
        with self._path(path).open("xb" if mode == "create" else "wb") as file:
            file.write(value)

    def mkdir(self, path, create_parents=True, **_):
        self._path(path).mkdir(parents=create_parents)

    def makedirs(self, path, exist_ok=False):
        self._path(path).mkdir(parents=True, exist_ok=exist_ok)

    def rmdir(self, path):
        self._path(path).rmdir()

    def rm_file(self, path):
        self._path(path).unlink()

    def rm(self, path, recursive=False, maxdepth=None):
        for one in path if isinstance(path, list) else [path]:
            found = self._path(one)
            if recursive and maxdepth is None:
                found.rmtree()
            elif recursive:
                super().rm(one, recursive, maxdepth)
            else:
                found.unlink()

    def mv(self, path1, path2, recursive=False, maxdepth=None, **_):
        self._path(path1).rename(self._path(path2))

    def cp_file(self, path1, path2, **_):
        source, target = self._path(path1), self._path(path2)
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            return
        if target.exists() and target.stat().st_ino == source.stat().st_ino:
            raise shutil.SameFileError(f"{path1} and {path2} are the same file")
        with source.open("rb", 0) as from_, target.open("wb", 0) as to:
            while piece := from_.read(1 << 20):
                while piece:
                    piece = piece[to.write(piece) :]

    def touch(self, path, truncate=True, **_):
        path = self._path(path)
        if not truncate:
            return path.touch()
        with path.open("wb"):
            pass

    def created(self, path):
        raise NotImplementedError("the time of creation is not told: use modified()")

    def modified(self, path):
        when = self._path(path).stat().st_mtime
        return datetime.datetime.fromtimestamp(when, tz=datetime.timezone.utc)
