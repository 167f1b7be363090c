"""The fsspec filesystem of the protocol cairn://: what pandas, dask and others read from.

    import pandas

    pandas.read_csv("cairn://data/table.csv", storage_options={"image": "disk.img#2"})
"""

import datetime
import errno
import os
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
        """What a directory has: a link is one, so that nobody walks into it."""
        found, link = path.stat(follow_symlinks=False), None
        kind = stat.S_IFMT(found.st_mode)
        if kind == stat.S_IFLNK:
            link = path.readlink()
            if path.exists():
                found = path.stat()
        kinds = {stat.S_IFDIR: "directory", stat.S_IFREG: "file", stat.S_IFLNK: "link"}
        entry = {
            "name": str(path),
            "size": found.st_size,
            "type": kinds.get(kind, "other"),
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
        path = self._path(path)
        entry = self._entry(path)
        if entry["islink"]:
            # Where it leads to, which is there.
            kind = stat.S_IFMT(path.stat().st_mode)
            entry["type"] = {stat.S_IFDIR: "directory", stat.S_IFREG: "file"}.get(kind, "other")
        return entry

    def lexists(self, path, **_):
        return self._path(path).exists(follow_symlinks=False)

    def islink(self, path):
        return self._path(path).is_symlink()

    def ls(self, path, detail=True, **_):
        path = self._path(path)
        if not path.is_dir():
            return [self.info(path)] if detail else [self.info(path)["name"]]
        found = sorted(path.iterdir())
        return [self._entry(one) for one in found] if detail else [str(one) for one in found]

    def walk(self, path, maxdepth=None, topdown=True, on_error="omit", **more):
        """As that of fsspec, in trees of any depth. on_error is for all directories, as of os.walk."""
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        detail = more.pop("detail", False)
        # Directories and their depths, the next one last; those that were listed with what they
        # have.
        left = [(self._strip_protocol(path), 1)]
        while left:
            found, depth = left.pop()
            if isinstance(found, tuple):
                yield found
                continue
            try:
                listed = self.ls(found, detail=True, **more)
            except OSError as error:
                if on_error == "raise":
                    raise
                if callable(on_error):
                    on_error(error)
                continue
            directories, files = {}, {}
            for entry in listed:
                # That of a file itself has no name below it.
                name = "" if entry["name"] == found else entry["name"].rsplit("/", 1)[-1]
                is_below = entry["type"] == "directory" and name
                (directories if is_below else files)[name] = entry
            if not detail:
                directories, files = list(directories), list(files)
            if topdown:
                yield found, directories, files
            else:
                left.append(((found, directories, files), depth))
            if depth != maxdepth:
                below = found.rstrip("/") + "/"
                left += [(below + name, depth + 1) for name in reversed(list(directories))]

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
        path = self._path(path)
        if path.exists():
            code = errno.EEXIST
            raise FileExistsError(code, os.strerror(code), str(path))
        path.mkdir(parents=create_parents)

    def makedirs(self, path, exist_ok=False):
        self._path(path).mkdir(parents=True, exist_ok=exist_ok)

    def rmdir(self, path):
        self._path(path).rmdir()

    def rm_file(self, path):
        self._path(path).unlink()

    def rm(self, path, recursive=False, maxdepth=None):
        for one in path if isinstance(path, (list, tuple, set)) else [path]:
            found = self._path(one)
            if found.is_symlink() or not found.is_dir():
                found.unlink()
            elif not recursive:
                raise ValueError("Cannot delete directory, set recursive=True")
            elif maxdepth is None:
                found.rmtree()
            else:
                super().rm(one, recursive, maxdepth)

    def mv(self, path1, path2, recursive=True, maxdepth=None, **_):
        """Renames files and directories. Several go into the directory path2, or to as many names;
        an existing directory takes what is moved to it under its own name."""
        if isinstance(path1, (list, tuple)):
            many = isinstance(path2, (list, tuple))
            if many and len(path1) != len(path2):
                raise ValueError("as many targets as sources, or one directory")
            if not many and not self._path(path2).is_dir():
                code = errno.ENOTDIR
                raise NotADirectoryError(code, os.strerror(code), str(self._path(path2)))
            for source, target in zip(path1, path2 if many else [path2] * len(path1)):
                self.mv(source, target)
            return
        source, target = self._path(path1), self._path(path2)
        if target.is_dir() and not (source.exists() and target.samefile(source)):
            target = target / source.name
            if target.exists():
                raise shutil.Error(f"Destination path '{target}' already exists")
        if source.is_dir() and not source.is_symlink() and source in target.parents:
            raise shutil.Error(f"Cannot move a directory '{source}' into itself '{target}'.")
        source.rename(target)

    def link(self, src, dst, **_):
        self._path(dst).hardlink_to(self._path(src))

    def symlink(self, src, dst, **_):
        self._path(dst).symlink_to(self._path(src))

    def chmod(self, path, mode):
        self._path(path).chmod(mode)

    def cp_file(self, path1, path2, **_):
        source, target = self._path(path1), self._path(path2)
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            return
        if not source.is_file():
            code = errno.ENOENT
            raise FileNotFoundError(code, os.strerror(code), str(source))
        if target.exists() and target.samefile(source):
            raise shutil.SameFileError(f"{path1} and {path2} are the same file")
        with source.open("rb", 0) as from_, target.open("wb", 0) as to:
            while piece := from_.read(1 << 20):
                while piece:
                    piece = piece[to.write(piece) :]

    def touch(self, path, truncate=True, **_):
        path = self._path(path)
        path.touch()
        if truncate:
            with path.open("r+b", 0) as file:
                file.truncate(0)

    def created(self, path):
        when = self._path(path).birthtime()
        if when is None:
            raise NotImplementedError("this volume records no time of creation: use modified()")
        return datetime.datetime.fromtimestamp(when, tz=datetime.timezone.utc)

    def modified(self, path):
        when = self._path(path).stat().st_mtime
        return datetime.datetime.fromtimestamp(when, tz=datetime.timezone.utc)
