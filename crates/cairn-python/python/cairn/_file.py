"""Open files."""

import errno
import io
import os
import sys
import weakref

from ._names import stat_result


class File(io.RawIOBase):
    """An open file without a buffer: what open() of a path gives with buffering=0, and what is
    below the buffers that it gives else."""

    def __init__(self, native, volume, name, mode, readable, writable):
        super().__init__()
        self._native = native
        # The volume stays open while this does.
        self._volume = volume
        #: The buffers over it, the lowest first, by weak references: they refer to this.
        self._layers = []
        self.name = name
        self.mode = mode
        self._readable = readable
        self._writable = writable

    def __repr__(self):
        return f"<cairn.File name={self.name!r} mode={self.mode!r}>"

    def _check(self, allowed, what):
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        if not allowed:
            raise io.UnsupportedOperation(f"not open for {what}")

    def readable(self):
        return self._readable

    def writable(self):
        return self._writable

    def seekable(self):
        return True

    def readinto(self, buffer):
        self._check(self._readable, "reading")
        view = memoryview(buffer).cast("B")
        data = self._native.read(len(view))
        view[: len(data)] = data
        return len(data)

    def read(self, size=-1):
        self._check(self._readable, "reading")
        return self._native.read(sys.maxsize if size is None or size < 0 else size)

    def readall(self):
        return self.read()

    def write(self, data):
        self._check(self._writable, "writing")
        return self._native.write(_bytes(data))

    def _not_negative(self, *numbers):
        """As the system's calls, which know no negative sizes."""
        if min(numbers) < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(self.name))

    def pread(self, size, offset):
        """Reads from an offset. The position stays."""
        self._check(self._readable, "reading")
        self._not_negative(size, offset)
        return self._native.read(size, offset)

    def pwrite(self, data, offset):
        """Writes at an offset. The position stays."""
        self._check(self._writable, "writing")
        self._not_negative(offset)
        return self._native.write(_bytes(data), offset)

    def seek(self, offset, whence=io.SEEK_SET):
        self._check(True, "")
        return self._native.seek(offset, whence)

    def tell(self):
        return self.seek(0, io.SEEK_CUR)

    def truncate(self, size=None):
        self._check(self._writable, "writing")
        size = self.tell() if size is None else size
        self._not_negative(size)
        self._native.truncate(size)
        return size

    def sync(self, data_only=False):
        """Makes the file durable, as os.fsync (or os.fdatasync): flush() buffers before."""
        self._check(True, "")
        self._native.sync(data_only)

    def stat(self):
        """What the volume knows about the file."""
        self._check(True, "")
        return stat_result(self._native.stat())

    def close(self):
        if not self.closed:
            try:
                super().close()
            finally:
                self._native.close()
                self._volume._files.pop(id(self), None)

    def _close_all(self):
        """Closes the buffers over it, which write what they hold, and then itself. The errors."""
        failures = []
        layers = [layer() for layer in reversed(self._layers)]
        for layer in [*layers, self]:
            if layer is None or _is_detached(layer):
                continue
            try:
                layer.close()
            except Exception as failure:
                failures.append(failure)
        return failures


def _is_detached(layer):
    try:
        return layer.closed
    except ValueError:
        return True


def _bytes(data):
    return data if isinstance(data, bytes) else memoryview(data).tobytes()


def wrap(raw, buffering, text, encoding, errors, newline):
    """The layers over a file that the builtin open() gives."""
    if buffering == 0:
        return raw
    line = buffering == 1 and text
    size = buffering if buffering > 1 else 128 * 1024
    if raw.readable() and raw.writable():
        buffered = io.BufferedRandom(raw, size)
    elif raw.writable():
        buffered = io.BufferedWriter(raw, size)
    else:
        buffered = io.BufferedReader(raw, size)
    raw._layers.append(weakref.ref(buffered))
    if not text:
        return buffered
    wrapped = io.TextIOWrapper(buffered, encoding or "utf-8", errors, newline, line)
    raw._layers.append(weakref.ref(wrapped))
    wrapped.mode = raw.mode
    return wrapped
