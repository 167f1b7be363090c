"""Writes a tree by a script, lists and checks it: tree.py apply IMAGE SCRIPT | list IMAGE |
check IMAGE. cairn-testkit's tree/script.rs describes scripts and listings."""

import os
import stat
import sys
import zlib

import cairn


def unhex(digits):
    return b"" if digits == "-" else bytes.fromhex(digits)


def text(digits):
    return unhex(digits).decode("utf-8", "surrogateescape")


def digits(data):
    return data.hex() or "-"


def apply(volume, script):
    while line := script.readline():
        word, *fields = line.decode().split()
        path = volume / text(fields[0])
        if word == "mkdir":
            path.mkdir()
        elif word == "file":
            with path.open("wb") as file:
                file.truncate(int(fields[1]))
        elif word == "write":
            data = script.read(int(fields[2]))
            assert script.read(1) == b"\n"
            with path.open("r+b") as file:
                file.seek(int(fields[1]))
                file.write(data)
        elif word == "symlink":
            (volume / text(fields[1])).symlink_to(text(fields[0]))
        elif word == "link":
            (volume / text(fields[1])).hardlink_to(path)
        elif word == "mknod":
            path.mknod(int(fields[1], 8), int(fields[2]), int(fields[3]))
        elif word == "setxattr":
            path.setxattr(unhex(fields[1]), unhex(fields[2]))
        elif word == "chown":
            path.chown(int(fields[1]), int(fields[2]))
        elif word == "chmod":
            path.chmod(int(fields[1], 8))
        elif word == "utimes":
            access, modification = (
                int(fields[at]) * 10**9 + int(fields[at + 1]) for at in (1, 3)
            )
            path.utime(ns=(access, modification), follow_symlinks=False)
        else:
            raise ValueError(line)
    volume.sync()


def line_of(path):
    found = path.lstat()
    crc = 0
    if stat.S_ISLNK(found.st_mode):
        crc = zlib.crc32(path.readlink().encode("utf-8", "surrogateescape"))
    elif stat.S_ISREG(found.st_mode):
        with path.open("rb") as file:
            while piece := file.read(70001):
                crc = zlib.crc32(piece, crc)
    links, size = found.st_nlink, found.st_size
    if stat.S_ISDIR(found.st_mode):
        links = size = 0
    seconds, nanoseconds = divmod(found.st_mtime_ns, 10**9)
    device = f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
    line = (
        f"{digits(bytes(path)[1:])} {found.st_mode:o} {links} {found.st_uid} {found.st_gid} "
        f"{size} {seconds}.{nanoseconds:09} {device} {crc:08x}"
    )
    for name in sorted(path.listxattr()):
        line += f" {digits(name.encode())}={digits(path.getxattr(name))}"
    return line


def listing(volume):
    lines = []
    for directory, directories, files in volume.root.walk():
        if directory == volume.root and "lost+found" in directories:
            directories.remove("lost+found")
        lines += [line_of(directory / name) for name in directories + files]
    return sorted(lines)


def main(what, image, *more):
    if what == "check":
        print(f"{len(cairn.check(image))} defects")
        return
    with cairn.open(image, "rw" if what == "apply" else "r") as volume:
        if what == "apply":
            with open(more[0], "rb") as script:
                apply(volume, script)
        else:
            print("\n".join(listing(volume)))


if __name__ == "__main__":
    main(*sys.argv[1:])
