"""Names and attributes, between Python and the volume."""

import os


def encode(path):
    """The bytes of a path. Names that are no UTF-8 are strings with surrogates, as those of os."""
    if isinstance(path, str):
        data = path.encode("utf-8", "surrogateescape")
    elif isinstance(path, bytes) or hasattr(path, "__bytes__"):
        data = bytes(path)
    else:
        raise TypeError(f"a path is a str, bytes or a path object, not {type(path).__name__}")
    if b"\0" in data:
        raise ValueError("embedded null byte")
    return data


def decode(data):
    return data.decode("utf-8", "surrogateescape")


def stat_result(found):
    """An os.stat_result."""
    first, times, sectors, device = found
    names = ("atime", "mtime", "ctime")
    rest = {"st_blocks": sectors, "st_blksize": 4096, "st_rdev": os.makedev(*device)}
    for name, (seconds, nanoseconds) in zip(names, times):
        rest["st_" + name] = seconds + nanoseconds / 1e9
        rest["st_" + name + "_ns"] = seconds * 1_000_000_000 + nanoseconds
    return os.stat_result(first + tuple(seconds for seconds, _ in times), rest)
