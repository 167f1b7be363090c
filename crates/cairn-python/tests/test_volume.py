"""Volumes and their errors."""

import contextlib
import errno
import gc
import io
import signal
import subprocess
import sys
import threading

import cairn
import pytest
from conftest import judge, tool


def test_a_volume_is_a_context_manager(image):
    with cairn.open(image, "rw") as volume:
        assert volume.format in repr(volume) and not volume.closed
        (volume / "file").write_text("text")
    assert volume.closed
    volume.close()
    with pytest.raises(ValueError, match="closed"):
        (volume / "file").read_text()
    with cairn.open(str(image)) as again:
        assert (again / "file").read_text() == "text"
        with pytest.raises(OSError) as refused:
            (again / "file").unlink()
        assert refused.value.errno == errno.EROFS
        assert 0 < again.space().free_blocks < again.space().blocks


def test_an_ephemeral_volume_leaves_the_image(image):
    before = image.read_bytes()
    with cairn.open(image, "ephemeral") as volume:
        (volume / "file").write_text("text")
        assert volume.listdir().count("file") == 1
    assert image.read_bytes() == before


def test_errors_are_those_of_python(image, tmp_path):
    with pytest.raises(FileNotFoundError) as missing:
        cairn.open(tmp_path / "none")
    assert missing.value.filename == str(tmp_path / "none")
    assert missing.value.errno == errno.ENOENT and "check the name" in missing.value.strerror
    with pytest.raises(ValueError, match="mode"):
        cairn.open(image, "w")
    with pytest.raises(OSError, match="no_such"):
        cairn.open(image, mount_options="no_such")
    (tmp_path / "noise").write_bytes(b"noise" * 5000)
    with pytest.raises(OSError, match="not a filesystem"):
        cairn.open(tmp_path / "noise")
    with cairn.open(image, "rw") as volume:
        with pytest.raises(FileNotFoundError) as error:
            (volume / "a" / "b").read_text()
        assert error.value.filename == "/a/b"
        (volume / "a").write_text("")
        with pytest.raises(NotADirectoryError):
            (volume / "a" / "b").stat()
        with pytest.raises(IsADirectoryError):
            volume.root.open()
        with pytest.raises(FileExistsError):
            (volume / "a").mkdir()
        with pytest.raises(FileNotFoundError) as error:
            (volume / "x").rename("/y")
        assert (error.value.filename, error.value.filename2) == ("/x", "/y")


def test_a_volume_is_not_closed_under_a_file_that_writes(image):
    volume = cairn.open(image, "rw")
    file = (volume / "file").open("wb")
    with pytest.raises(OSError) as busy:
        volume.close()
    assert busy.value.errno == errno.EBUSY and not volume.closed
    file.write(b"kept")
    file.close()
    volume.close()
    # A volume that is only read may go first.
    volume = cairn.open(image)
    file = (volume / "file").open("rb")
    volume.close()
    assert file.read() == b"kept"
    file.close()


def test_a_forgotten_volume_is_clean(image):
    volume = cairn.open(image, "rw")
    (volume / "file").write_text("text")
    del volume
    gc.collect()
    with cairn.open(image) as volume:
        assert (volume / "file").read_text() == "text"


def test_threads_write_at_once(volume):
    failures = []

    def work(number):
        try:
            for round in range(10):
                path = volume / f"{number}-{round}"
                with path.open("w+b") as file:
                    file.write(bytes([number]) * 9000)
                    file.flush()
                    file.raw.sync()
                    assert file.raw.pread(2, 8999) == bytes([number])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len([path for path in volume.root.iterdir() if path.is_file()]) == 40


def test_a_volume_is_made_and_checked(tmp_path):
    for format in ["ext4", "f2fs"]:
        image = tmp_path / format
        cairn.mkfs(image, format, 64 << 20, label="made")
        with pytest.raises(FileExistsError):
            cairn.mkfs(image, format)
        assert cairn.check(image) == []
        judge(image, format)


def test_a_check_tells_how_far_it_is_and_can_be_ended(image):
    heard = []
    here = threading.get_ident()

    def progress(now):
        assert threading.get_ident() == here
        heard.append(now)

    assert cairn.check(image, progress=progress) == []
    assert [now.phase for now in heard] == sorted(now.phase for now in heard)
    assert heard[-1].phase == heard[-1].phases and heard[0].what
    assert all(0 <= now.done <= now.total for now in heard)

    class Enough(Exception):
        pass

    calls = []

    def ends(now):
        calls.append(now)
        raise Enough

    with pytest.raises(Enough):
        cairn.check(image, progress=ends)
    assert len(calls) == 1
    assert cairn.check(image) == []


def test_a_signal_ends_a_check(image):
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            cairn.check(image, progress=lambda now: signal.raise_signal(signal.SIGALRM))
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("mode", ["r", "rw", "ephemeral"])
def test_a_forked_child_leaves_the_volume_alone(image, mode):
    script = """if True:
        import errno, os, sys, cairn
        with cairn.open(sys.argv[1], sys.argv[2]) as volume:
            file = volume.open("/file", "rb") if sys.argv[2] == "r" else volume.open("/file", "wb", 0)
            child = os.fork()
            if child == 0:
                use = file.read if file.readable() else lambda: file.write(b"child")
                for call in volume.listdir, use, lambda: file.seek(0, 2):
                    try:
                        call()
                    except OSError as error:
                        assert error.errno == errno.EPERM, error
                        assert error.filename in ("/", "/file"), error.filename
                    else:
                        raise AssertionError(f"{call} in the child")
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
            file.close()
            assert "file" in volume.listdir()
    """
    with cairn.open(image, "rw") as volume:
        (volume / "file").touch()
    subprocess.run([sys.executable, "-c", script, image, mode], check=True)


class Interruption(Exception):
    pass


def test_the_end_of_with_closes_files_and_keeps_the_program_s_exception(image):
    for end in [None, Interruption("of the program"), KeyboardInterrupt()]:
        with pytest.raises(type(end)) if end else contextlib.nullcontext() as raised:
            with cairn.open(image, "rw") as volume:
                text, raw = volume.open("text", "w"), volume.open("raw", "wb", 0)
                buffered = io.TextIOWrapper(volume.open("detached", "wb"))
                text.write("in a buffer")
                raw.write(b"written")
                detached = buffered.detach()
                detached.write(b"below what was detached")
                if end:
                    raise end
        assert raised is None or raised.value is end
        assert not getattr(end, "__notes__", [])
        assert volume.closed and text.closed and raw.closed and detached.closed
        with pytest.raises(ValueError, match="closed"):
            text.write("x")
        with cairn.open(image) as volume:
            assert (volume / "text").read_text() == "in a buffer"
            assert (volume / "raw").read_bytes() == b"written"
            assert (volume / "detached").read_bytes() == b"below what was detached"


def fill(volume):
    """Leaves no room for what a file still has in its buffer."""
    file = volume.open("late", "wb")
    file.write(b"x" * 100_000)
    with volume.open("full", "wb", 0) as full:
        for size in [1 << 20, 4096] * 2:
            with contextlib.suppress(OSError):
                while full.write(b"x" * size) == size:
                    pass
            # What was set aside and is not needed is free now.
            full.sync()
    return file


def test_what_could_not_be_written_at_the_end_of_with_is_told(image):
    with pytest.raises(OSError) as full, cairn.open(image, "rw") as volume:
        late = fill(volume)
    assert (full.value.errno, full.value.filename) == (errno.ENOSPC, "late")
    assert volume.closed and late.closed
    with pytest.raises(Interruption) as raised, cairn.open(image, "rw") as volume:
        late = fill(volume)
        raise Interruption
    assert volume.closed and late.closed
    if sys.version_info >= (3, 11):
        assert "late" in " ".join(raised.value.__notes__)


def test_who_still_uses_a_volume_after_with_closes_it(image):
    with pytest.raises(Interruption), cairn.open(image, "rw") as volume:
        (volume / "file").touch()
        # What a call at work is: the native part is used by more than the volume.
        native = volume._native.open_file(b"/file", "w", 0)
        raise Interruption
    assert volume.closed
    native.write(b"later")
    with pytest.raises(OSError) as busy:
        cairn.open(image, "rw")
    assert busy.value.errno == errno.EBUSY
    native.close()
    with cairn.open(image) as volume:
        assert (volume / "file").read_bytes() == b"later"


def test_the_end_of_a_program_closes_files_and_then_volumes(image):
    script = """if True:
        import os, sys, cairn
        volume = cairn.open(sys.argv[1], "rw")
        text = volume.open("text", "w")
        text.write("in a buffer")
        raw = volume.open("raw", "wb", 0)
        raw.write(b"written")
        # The child ends as well, and leaves the files to the parent.
        child = os.fork()
        if child:
            assert os.waitpid(child, 0)[1] == 0
    """
    run = subprocess.run([sys.executable, "-c", script, image], capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    judge_of(image)
    with cairn.open(image) as volume:
        assert (volume / "text").read_text() == "in a buffer"
        assert (volume / "raw").read_bytes() == b"written"


def judge_of(image):
    with cairn.open(image) as volume:
        format = volume.format
    judge(image, format)


@pytest.mark.filterwarnings("error")
def test_a_cycle_of_garbage_is_closed(image):
    volume = cairn.open(image, "rw")
    # Buffers in a cycle may be lost, as those of the builtin open().
    volume.mine = volume.open("file", "wb", 0)
    volume.mine.write(b"written")
    del volume
    gc.collect()
    with cairn.open(image, "rw") as volume:
        assert (volume / "file").read_bytes() == b"written"


def test_a_volume_that_can_only_be_read_is_not_opened_for_writing(tmp_path):
    image = tmp_path / "disk.img"
    features = "bigalloc,quota,extents"
    command = [tool("mke2fs"), "-qF", "-t", "ext4", "-O", features, image, "32M"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    plain = tmp_path / "plain.img"
    cairn.mkfs(plain, "ext4", 16 << 20)
    for path, options, word in [(image, "", "bigalloc"), (plain, "ro", "reading")]:
        before = path.read_bytes()
        for mode in ["rw", "ephemeral"]:
            with pytest.raises(OSError, match=word) as refused:
                cairn.open(path, mode, mount_options=options)
            assert refused.value.errno == errno.EROFS
            assert refused.value.filename == str(path) and "option" not in refused.value.strerror
        # The image is free again, and as it was.
        assert path.read_bytes() == before
        with cairn.open(path, mount_options=options) as volume:
            assert "lost+found" in volume.listdir()
    cairn.open(plain, "rw").close()


def test_errors_of_a_volume_name_its_image(image):
    with cairn.open(image, "rw") as volume:
        (volume / "file").touch()
        with volume.open("file", "rb"):
            for call in volume.close, lambda: cairn.open(image, "rw"):
                with pytest.raises(OSError) as busy:
                    call()
                assert (busy.value.errno, busy.value.filename) == (errno.EBUSY, str(image))
            assert "this process" in busy.value.strerror and "ended" not in busy.value.strerror
    for size in [-5, 1 << 64]:
        with pytest.raises(OSError) as wrong:
            cairn.mkfs(image, size=size, overwrite=True)
        assert (wrong.value.errno, wrong.value.filename) == (errno.EINVAL, str(image))
