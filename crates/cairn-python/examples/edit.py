"""Adds a line to a file of a disk image, and says what is beside it: edit.py IMAGE PATH LINE."""

import sys

import cairn

image, name, line = sys.argv[1:]
with cairn.open(image, "rw") as volume:
    path = volume / name
    text = path.read_text() if path.exists() else ""
    path.write_text(text + line + "\n")
    for entry in sorted(path.parent.iterdir()):
        print(f"{entry.stat(follow_symlinks=False).st_size:8} {entry}")
