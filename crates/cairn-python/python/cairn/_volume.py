"""Volumes: made, opened, checked."""

import collections
import errno
import os
import weakref

from . import _cairn, _file
from ._names import decode, encode
from ._path import Path

#: How much room a volume has, in blocks and inodes.
Space = collections.namedtuple(
    "Space",
    "block_size blocks free_blocks available_blocks inodes free_inodes name_max",
)

_FLAGS = {"r": "r", "w": "wct", "a": "ac", "x": "wx"}


def open(image, mode="r", *, mount_options=""):
    """Opens the volume in an image: "disk.img", its partition 2 as "disk.img#2", or
    "disk.img?offset=BYTES"; a str, bytes or an os.PathLike.

    mode: "r" writes nothing to the image; "rw" reads and writes; "ephemeral" keeps changes in
    memory and drops them. A volume that can only be read is opened by "r" alone: the others raise
    EROFS. mount_options are those of the kernel, separated by commas.
    """
    return Volume(_cairn.open(os.fsdecode(image), mode, mount_options), os.fspath(image), mode)


def mkfs(image, format="ext4", size=None, *, label=None, overwrite=False):
    """Makes a volume. size is that of the image file in bytes, which is made if it is missing.
    Without overwrite, FileExistsError keeps what the image holds."""
    if size is not None and not 0 <= size < 1 << 64:
        raise OSError(errno.EINVAL, f"no file has {size} bytes", os.fsdecode(image))
    _cairn.mkfs(os.fsdecode(image), format, size, label, overwrite)


#: How far a check is: what is checked, the number of the phase and of all phases, steps.
CheckProgress = collections.namedtuple("CheckProgress", "what phase phases done total")


def check(image, *, progress=None):
    """The defects of a volume that nobody has open for writing, in words. The image is only
    read.

    progress is called with a CheckProgress in this thread when the check has come further. An
    exception that it raises ends the check, as KeyboardInterrupt does, and leaves check().
    """
    tell = None if progress is None else lambda *now: progress(CheckProgress(*now))
    return _cairn.check(os.fsdecode(image), tell)


def _close_files(files, process):
    """Closes the open files of a volume. What could not be written. Those of a forked process are
    the parent's to write."""
    found = [] if os.getpid() != process else [file() for file in list(files.values())]
    return [failure for file in found if file is not None for failure in file._close_all()]


def _end(native, files, process):
    """Closes a volume with its files. If a call of another thread is at work, it closes the volume."""
    failures = _close_files(files, process)
    native.close(True)
    if failures:
        raise failures[0]


class Volume:
    """An open volume: a context manager, and the root of paths (volume / "etc" / "hosts").

    Any number of threads may use it, but no process that is forked: it opens the image again
    (OSError EPERM; close() changes nothing there). What was written is durable after sync(), close() or a
    file's sync().

    The end of a with statement, and of the program, closes the files that open() gave and that are
    still open, which writes what their buffers hold, and then the volume. An exception that ends
    the with statement leaves it; what could not be written is a note of that (from Python 3.11 on).
    close() itself closes no files: of a volume that is written it is refused with EBUSY while files of it
    are open.
    """

    def __init__(self, native, image, mode):
        self._native = native
        self._process = os.getpid()
        self.image = image
        self.mode = mode
        #: Weak references to the open files, by their id.
        self._files = {}
        # Also when the program ends without closing it.
        self._finalizer = weakref.finalize(self, _end, native, self._files, self._process)

    def __repr__(self):
        return f"<cairn.Volume image={self.image!r} format={self.format!r} mode={self.mode!r}>"

    def __enter__(self):
        if self.closed:
            raise ValueError("the volume is closed")
        return self

    def __exit__(self, kind, error, _):
        failures = _close_files(self._files, self._process)
        try:
            if error is None:
                self.close()
            else:
                self._finalizer()
        except OSError as failure:
            failures.append(failure)
        if error is None and failures:
            raise failures[0]
        for failure in failures if hasattr(error, "add_note") else []:
            error.add_note(f"{self!r} was not closed cleanly: {failure}")

    def __truediv__(self, name):
        return Path(self, name)

    @property
    def root(self):
        """The root directory."""
        return Path(self)

    def path(self, *names):
        """The path of these names below the root."""
        return Path(self, *names)

    def _bytes(self, path):
        # A path of another volume is refused.
        return bytes(self.path(path)) if isinstance(path, Path) else encode(path)

    @property
    def format(self):
        """"ext4" or "f2fs"."""
        return self._native.format

    @property
    def closed(self):
        return self._native.closed

    def close(self):
        """Writes everything and marks the volume clean. Again is allowed."""
        self._native.close(False)
        self._finalizer.detach()

    def sync(self):
        """Makes everything durable that was written so far."""
        self._native.sync()

    def space(self):
        """How much room there is."""
        return Space(*self._native.statfs())

    def listdir(self, path="/"):
        """The names in a directory, in its own order."""
        return [decode(name) for name, _, _ in self._native.list(self._bytes(path))]

    def open(
        self, path, mode="r", buffering=-1, encoding=None, errors=None, newline=None,
        *, permissions=0o644,
    ):
        """Opens a file as the builtin open() does. Text is UTF-8 unless encoding is given; there
        is no umask."""
        kinds = [kind for kind in mode if kind in "rwax"]
        text, plus = "b" not in mode, "+" in mode
        if len(kinds) != 1 or set(mode) - set("rwaxbt+") or ("t" in mode and not text):
            raise ValueError(f"invalid mode: {mode!r}")
        if text and buffering == 0:
            raise ValueError("can't have unbuffered text I/O")
        if not text and (encoding or errors or newline is not None):
            raise ValueError("binary mode takes no encoding, errors or newline argument")
        kind = kinds[0]
        flags = _FLAGS[kind] + ("r" if plus and kind != "r" else "w" if plus else "")
        native = self._native.open_file(self._bytes(path), flags, permissions)
        name = path if isinstance(path, str) else str(path)
        raw = _file.File(native, self, name, mode, kind == "r" or plus, kind != "r" or plus)
        self._files[id(raw)] = weakref.ref(raw)
        try:
            # A file that is appended to begins at its end.
            if kind == "a":
                raw.seek(0, os.SEEK_END)
            return _file.wrap(raw, buffering, text, encoding, errors, newline)
        except BaseException:
            raw.close()
            raise
