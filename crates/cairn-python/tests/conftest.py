"""What the tests share: a new volume of each format, and the judges of what was written."""

import os
import shutil
import subprocess

import cairn
import pytest

SIZE = 64 << 20


def tool(name):
    found = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    assert found, f"{name} is not installed: run scripts/install-deps"
    return found


def judge(image, format):
    command = [tool("e2fsck"), "-fn"] if format == "ext4" else [tool("fsck.f2fs"), "--dry-run"]
    run = subprocess.run([*command, image], capture_output=True, text=True, check=False)
    assert run.returncode == 0 and "[FAIL]" not in run.stdout, run.stdout + run.stderr


@pytest.fixture(params=["ext4", "f2fs"])
def image(request, tmp_path):
    """An image that the makers of the format have made, and judge at the end."""
    path = tmp_path / "disk.img"
    with open(path, "wb") as file:
        file.truncate(SIZE)
    command = [tool("mke2fs"), "-qF"] if request.param == "ext4" else [tool("mkfs.f2fs"), "-q"]
    subprocess.run([*command, path], check=True, stdout=subprocess.DEVNULL)
    yield path
    judge(path, request.param)


@pytest.fixture
def volume(image):
    with cairn.open(image, "rw") as volume:
        yield volume
