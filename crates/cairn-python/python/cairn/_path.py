"""Paths of a volume, as pathlib has those of the system."""

import errno
import fnmatch
import functools
import os
import pathlib
import re
import stat
import time

from ._names import decode, encode, stat_result

#: Most symbolic links that a path follows.
MAX_LINKS = 40


@functools.total_ordering
class Path:
    """A path of a volume, from its root on. It is no os.PathLike: the system's calls would take
    it for one of theirs."""

    __slots__ = ("_volume", "_pure")

    def __init__(self, volume, *names):
        self._volume = volume
        pure = pathlib.PurePosixPath("/", *map(self._name, names))
        # Two slashes at the beginning, which it keeps, mean nothing here.
        self._pure = pathlib.PurePosixPath("/" + str(pure).lstrip("/"))

    def _with(self, pure):
        return Path(self._volume, str(pure))

    def _name(self, name):
        """The text of a name, which may be a path of this volume."""
        if not isinstance(name, Path):
            name = os.fspath(name)
            return decode(name) if isinstance(name, bytes) else name
        if name._volume is not self._volume:
            raise ValueError(f"{name!r} is a path of another volume")
        return str(name)

    def _beside(self, target):
        """A path that a call takes besides this one."""
        if isinstance(target, Path) and target._volume is not self._volume:
            code = errno.EXDEV
            raise OSError(code, os.strerror(code), str(self), None, str(target))
        return self._with(self._name(target))

    # Names

    def __str__(self):
        return str(self._pure)

    def __repr__(self):
        return f"cairn.Path({str(self)!r})"

    def __bytes__(self):
        return encode(str(self))

    def _key(self):
        return (id(self._volume), str(self))

    def __eq__(self, other):
        return self._key() == other._key() if isinstance(other, Path) else NotImplemented

    def __lt__(self, other):
        return self._key() < other._key() if isinstance(other, Path) else NotImplemented

    def __hash__(self):
        return hash(self._key())

    def __truediv__(self, name):
        return self._with(self._pure / self._name(name))

    def joinpath(self, *names):
        return self._with(self._pure.joinpath(*map(self._name, names)))

    @property
    def volume(self):
        return self._volume

    @property
    def parts(self):
        return self._pure.parts

    @property
    def parent(self):
        return self._with(self._pure.parent)

    @property
    def parents(self):
        return [self._with(parent) for parent in self._pure.parents]

    @property
    def name(self):
        return self._pure.name

    @property
    def stem(self):
        return self._pure.stem

    @property
    def suffix(self):
        return self._pure.suffix

    @property
    def suffixes(self):
        return self._pure.suffixes

    @property
    def anchor(self):
        return self._pure.anchor

    @property
    def drive(self):
        return self._pure.drive

    @property
    def root(self):
        return self._pure.root

    def as_posix(self):
        return str(self)

    def is_absolute(self):
        """True: a path begins at the root."""
        return True

    def absolute(self):
        return self

    def with_name(self, name):
        return self._with(self._pure.with_name(self._name(name)))

    def with_stem(self, stem):
        return self._with(self._pure.with_stem(self._name(stem)))

    def with_suffix(self, suffix):
        return self._with(self._pure.with_suffix(suffix))

    def _other(self, other):
        """Another path from the root on."""
        return other._pure if isinstance(other, Path) else Path(self._volume, other)._pure

    def relative_to(self, other):
        """The path below another one, as a pathlib.PurePosixPath."""
        self._name(other)
        return self._pure.relative_to(self._other(other))

    def is_relative_to(self, other):
        if isinstance(other, Path) and other._volume is not self._volume:
            return False
        return self._pure.is_relative_to(self._other(other))

    def match(self, pattern):
        return self._pure.match(pattern)

    def resolve(self, strict=False):
        """The path without symbolic links and "..". With strict, what does not exist is an error,
        and so are links that lead to each other."""
        left, at, links = list(reversed(self.parts[1:])), self._with("/"), 0
        while left:
            name = left.pop()
            if name == "..":
                at = at.parent
                continue
            path = at / name
            try:
                is_link = stat.S_ISLNK(path.lstat().st_mode)
            except OSError:
                if strict:
                    raise
                is_link = False
            links += is_link
            if is_link and links > MAX_LINKS and strict:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(self))
            if not is_link or links > MAX_LINKS:
                at = path
                continue
            target = pathlib.PurePosixPath(path.readlink())
            if target.is_absolute():
                at = self._with("/")
            left += reversed([part for part in target.parts if part != target.root])
        return at

    # Attributes

    @property
    def _native(self):
        return self._volume._native

    def stat(self, *, follow_symlinks=True):
        """An os.stat_result."""
        return stat_result(self._native.stat(bytes(self), follow_symlinks))

    def lstat(self):
        return self.stat(follow_symlinks=False)

    def birthtime(self):
        """When the file was made, in seconds, as st_birthtime of other systems; None if the volume has no
        room for it: ext4 with inodes of 128 bytes, F2FS without the feature inode_crtime."""
        made = self._native.created(bytes(self))
        return None if made is None else made[0] + made[1] / 1e9

    def samefile(self, other):
        """Whether two paths lead to the same file."""
        if isinstance(other, Path) and other._volume is not self._volume:
            return False
        return self.stat().st_ino == Path(self._volume, other).stat().st_ino

    def is_mount(self):
        """Whether it is the root: nothing is mounted on a volume that is read like this."""
        return self._is(lambda _: self.stat().st_ino == self._with("/").stat().st_ino)

    def _is(self, test, follow=True):
        try:
            return test(self.stat(follow_symlinks=follow).st_mode)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return False
            raise

    def exists(self, *, follow_symlinks=True):
        return self._is(lambda _: True, follow_symlinks)

    def is_dir(self):
        return self._is(stat.S_ISDIR)

    def is_file(self):
        return self._is(stat.S_ISREG)

    def is_symlink(self):
        return self._is(stat.S_ISLNK, False)

    def is_fifo(self):
        return self._is(stat.S_ISFIFO)

    def is_socket(self):
        return self._is(stat.S_ISSOCK)

    def is_block_device(self):
        return self._is(stat.S_ISBLK)

    def is_char_device(self):
        return self._is(stat.S_ISCHR)

    def chmod(self, mode):
        self._native.chmod(bytes(self), mode & 0o7777)

    def chown(self, uid, gid):
        """Sets owner and group; of a symbolic link its own. -1 keeps one."""
        if -1 in (uid, gid):
            found = self.lstat()
            uid, gid = (found.st_uid if uid == -1 else uid, found.st_gid if gid == -1 else gid)
        self._native.lchown(bytes(self), uid, gid)

    def utime(self, times=None, *, ns=None, follow_symlinks=True):
        """Sets the times of access and modification, as os.utime: times in seconds, or ns; to
        the time of now without either."""
        if times is not None and ns is not None:
            raise ValueError("give times or ns, not both")
        if times is None:
            ns = ns or (time.time_ns(),) * 2
        atime, mtime = ns or (round(seconds * 1e9) for seconds in times)
        self._native.utime(bytes(self), atime, mtime, follow_symlinks)

    def getxattr(self, name):
        """An extended attribute by its full name ("user.note")."""
        return self._native.getxattr(bytes(self), encode(name))

    def listxattr(self):
        return [decode(name) for name in self._native.listxattr(bytes(self))]

    def setxattr(self, name, value):
        self._native.setxattr(bytes(self), encode(name), bytes(value))

    def removexattr(self, name):
        self._native.setxattr(bytes(self), encode(name), None)

    # Contents

    def open(self, mode="r", buffering=-1, encoding=None, errors=None, newline=None, **more):
        """As Volume.open()."""
        return self._volume.open(self, mode, buffering, encoding, errors, newline, **more)

    def read_bytes(self):
        with self.open("rb", 0) as file:
            return file.read()

    def read_text(self, encoding=None, errors=None, newline=None):
        with self.open("r", -1, encoding, errors, newline) as file:
            return file.read()

    def write_bytes(self, data):
        data = memoryview(data)
        with self.open("wb") as file:
            return file.write(data)

    def write_text(self, text, encoding=None, errors=None, newline=None):
        if not isinstance(text, str):
            raise TypeError(f"data must be str, not {type(text).__name__}")
        with self.open("w", -1, encoding, errors, newline) as file:
            return file.write(text)

    # Directories

    def _entries(self):
        """Each entry's path, and whether it is a directory itself."""
        for name, _, kind in self._native.list(bytes(self)):
            path = self._with(self._pure / decode(name))
            yield path, stat.S_ISDIR(kind or path.lstat().st_mode)

    def iterdir(self):
        """The paths of the entries."""
        return (path for path, _ in self._entries())

    def walk(self, top_down=True):
        """The tree: (directory, names of directories, names of other files). Symbolic links are
        not followed. With top_down the caller may take names of directories away."""
        # Directories, the next one last; those that were listed are here with what they have.
        left = [self]
        while left:
            directory = left.pop()
            if isinstance(directory, tuple):
                yield directory
                continue
            entries = list(directory._entries())
            directories = [path.name for path, is_directory in entries if is_directory]
            files = [path.name for path, is_directory in entries if not is_directory]
            if top_down:
                yield directory, directories, files
            else:
                left.append((directory, directories, files))
            left += [directory / name for name in reversed(directories)]

    def glob(self, pattern):
        """The paths below this one that match a pattern, with ** for any number of directories.
        Symbolic links are not followed by **. A pattern that ends with / matches directories."""
        parts = pathlib.PurePosixPath(pattern).parts
        if not parts or parts[0] == "/":
            raise ValueError(f"the pattern must be relative and not empty: {pattern!r}")
        seen = set()
        is_wanted = lambda path: True
        if str(pattern).endswith("/"):
            is_wanted = lambda path: path.is_dir() and (parts[-1] != "**" or not path.is_symlink())
        for path in self._glob(parts):
            if path not in seen and is_wanted(path):
                seen.add(path)
                yield path

    def rglob(self, pattern):
        return self.glob("**/" + pattern)

    def _glob(self, parts):
        # What each part, up to the one that is looked at, still has to give.
        found = [self._matches(parts[0], len(parts) == 1)]
        while found:
            path = next(found[-1], None)
            if path is None:
                found.pop()
            elif len(found) == len(parts):
                yield path
            else:
                at = len(found)
                found.append(path._matches(parts[at], at + 1 == len(parts)))

    def _matches(self, part, is_last):
        """The paths that a part of a pattern matches below this one."""
        if part == "**":
            for directory, _, files in self.walk():
                yield directory
                if is_last:
                    yield from (directory / name for name in files)
        elif not re.search(r"[*?[]", part):
            path = self / part
            if path.exists(follow_symlinks=False):
                yield path
        elif self.is_dir():
            matches = re.compile(fnmatch.translate(part)).match
            for path in self.iterdir():
                if matches(path.name) and (is_last or path.is_dir()):
                    yield path

    def mkdir(self, mode=0o755, parents=False, exist_ok=False):
        missing, path = [], self
        while True:
            try:
                path._mkdir(0o755 if missing else mode, exist_ok or bool(missing))
                break
            except FileNotFoundError:
                if not parents or path.parent == path:
                    raise
                missing.append(path)
                path = path.parent
        for path in reversed(missing):
            path._mkdir(0o755 if path is not self else mode, exist_ok or path is not self)

    def _mkdir(self, mode, exist_ok):
        try:
            self._native.mkdir(bytes(self), mode)
        except FileNotFoundError:
            raise
        except OSError:
            # The root itself has no name that could be taken.
            if not exist_ok or not self.is_dir():
                raise

    def rmdir(self):
        self._native.rmdir(bytes(self))

    def rmtree(self):
        """Removes a directory with everything below it, or a file. Symbolic links are not
        followed."""
        self._native.rmtree(bytes(self))

    # Names of files

    def touch(self, mode=0o644, exist_ok=True):
        try:
            with self.open("xb", permissions=mode):
                pass
        except FileExistsError:
            if not exist_ok:
                raise
            self.utime()

    def unlink(self, missing_ok=False):
        try:
            self._native.unlink(bytes(self))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rename(self, target):
        """Renames it to a path of the volume, which it gives. One of that name is replaced."""
        target = self._beside(target)
        self._native.rename(bytes(self), bytes(target))
        return target

    replace = rename

    def symlink_to(self, target):
        """Makes this a symbolic link to target, which need not exist."""
        if isinstance(target, Path):
            target = self._name(target)
        self._native.symlink(encode(target), bytes(self))

    def hardlink_to(self, target):
        """Makes this a second name of target."""
        self._native.link(bytes(self._beside(target)), bytes(self))

    def readlink(self):
        """The target of a symbolic link: a string."""
        return decode(self._native.readlink(bytes(self)))

    def mknod(self, mode, major=0, minor=0):
        """Makes a file, FIFO, socket or device: the kind is in the mode."""
        self._native.mknod(bytes(self), mode, major, minor)

