"""ext4 (also ext3 and ext2) and F2FS volumes in disk images, read and written without a mount.

    import cairn

    with cairn.open("disk.img#2") as volume:
        print((volume / "etc" / "hosts").read_text())

A path begins at the volume's root. Symbolic links lead to files of the volume, never to those of
the system, and permissions are not checked. Errors are OSErrors with errno and filename.
"""

from ._cairn import VERSION as __version__
from ._file import File
from ._path import Path
from ._volume import CheckProgress, Space, Volume, check, mkfs, open

__all__ = [
    "CheckProgress",
    "File",
    "Path",
    "Space",
    "Volume",
    "__version__",
    "check",
    "mkfs",
    "open",
]
