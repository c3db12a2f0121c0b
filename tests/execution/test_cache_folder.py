"""Folders of compiled programs: bounded, shared by processes that may be killed, full, closed; never half a file."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from ipu_model.whole_files import write_whole
from popart_jax.errors import popart_exception
from popart_jax.execution.stored import seal
from popart_jax.execution.stored.cache_folder import keep, mark_used
from popart_jax.limits import limits

HEAD = """
import sys, time
from pathlib import Path
import numpy as np
from popart_jax.execution.stored import container
from popart_jax.execution.stored.cache_folder import keep
path = Path(sys.argv[1])
def write(path, size=200_000, value=1):
    container.write(path, path.stem, {}, {"w": np.random.default_rng(value).bytes(size) and
                                          np.full(size, value, np.uint8), "r": np.random.default_rng(0).random(size)})
"""


def python(code: str, *args: object) -> subprocess.Popen[str]:
    """A process that runs some code after `HEAD`."""
    command = [sys.executable, "-c", HEAD + code, *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def age(path: Path, seconds: float) -> None:
    """Let a file be so many seconds old."""
    then = time.time() - seconds
    os.utime(path, (then, then))


def put(folder: Path, name: str, size: int, used: float) -> Path:
    """A file that was used some seconds ago."""
    path = folder / name
    keep(path, lambda p: write_whole(p, b"x" * size))
    age(path, used)
    return path


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_files_used_least_recently_make_room(tmp_path: Path) -> None:
    put(tmp_path, "1.popef", 1000, 300)
    put(tmp_path, "popart_jax-2.popef", 1000, 200)
    third = put(tmp_path, "3.popef", 1000, 400)
    (tmp_path / "executable.popef").write_bytes(b"x" * 5000)  # exported by name: not ours to delete
    (tmp_path / "program-cache").write_bytes(b"x" * 5000)  # JAX's
    mark_used(third)
    with limits.set(cache=3000):
        put(tmp_path, "4.popef", 1000, 0)
    assert names(tmp_path) == ["3.popef", "4.popef", "executable.popef", "popart_jax-2.popef", "program-cache"]
    with limits.set(cache=10):
        put(tmp_path, "5.popef", 1000, 0)  # what was just written stays
    assert names(tmp_path) == ["5.popef", "executable.popef", "program-cache"]


def test_a_clock_that_jumps(tmp_path: Path) -> None:
    put(tmp_path, "1.popef", 1000, -1e9)
    put(tmp_path, "2.popef", 1000, 1e9)
    (tmp_path / ".9.popef.left").mkdir()
    age(tmp_path / ".9.popef.left", -1e9)
    with limits.set(cache=2000):
        put(tmp_path, "3.popef", 1000, 0)
    assert names(tmp_path) == ["1.popef", "3.popef"]


@pytest.mark.processes
def test_a_process_killed_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "7.popef"
    path.write_bytes(b"old")
    process = python(
        "def half(folder):\n"
        "    (folder / path.name).write_bytes(b'half')\n"
        "    print('half', flush=True); time.sleep(600)\n"
        "from ipu_model.whole_files import replace_file\n"
        "keep(path, lambda p: replace_file(p, half))",
        path,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "half\n"
    process.kill()
    process.communicate()
    assert path.read_bytes() == b"old"
    (left,) = tmp_path.glob(".7.popef.*")
    put(tmp_path, "8.popef", 10, 0)
    assert left.exists()  # its writer may be slow
    age(left, 7200)
    put(tmp_path, "8.popef", 10, 0)
    assert names(tmp_path) == ["7.popef", "8.popef"]


@pytest.mark.processes
def test_processes_that_write_one_file_leave_a_whole_one_at_any_time(tmp_path: Path) -> None:
    path = tmp_path / "7.popef"
    writers = [python("for _ in range(15): keep(path, lambda p: write(p, value=int(sys.argv[2])))", path, i)
               for i in (1, 2, 3)]  # fmt: skip
    seen = 0
    while any(w.poll() is None for w in writers):
        if path.exists():
            with zipfile.ZipFile(path) as archive:
                assert archive.testzip() is None
            seen += 1
        time.sleep(0.005)
    assert seen > 3
    assert [w.communicate()[1] for w in writers] == ["", "", ""]
    assert names(tmp_path) == ["7.popef"]


@pytest.mark.skipif(sys.platform != "linux", reason="limits of a process as Linux has them")
def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "7.popef"
    path.write_bytes(b"old")
    process = python(
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        "keep(path, write); print('goes on')",
        path,
    )
    out, err = process.communicate(timeout=300)
    assert out == "goes on\n"
    assert err.count("\n") == 1
    assert "The executable is not cached in" in err
    assert "File too large" in err
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["7.popef"]


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "plain").write_text("no folder")
    with caplog.at_level(logging.WARNING):
        keep(tmp_path / "plain" / "1.popef", lambda p: write_whole(p, b"x"))
    (record,) = caplog.records
    assert "The executable is not cached in" in record.getMessage()


@pytest.mark.skipif(os.name != "posix", reason="rights of folders are those of POSIX")
def test_a_new_folder_is_for_its_user_alone(tmp_path: Path) -> None:
    put(tmp_path / "new", "1.popef", 10, 0)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in this file system")
def test_pipes_in_the_place_of_files_stop_nobody(tmp_path: Path) -> None:
    """Opened, they would wait for another process for ever."""
    os.mkfifo(tmp_path / "1.popef")
    keep(tmp_path / "1.popef", lambda path: pytest.fail("written to"))
    os.mkfifo(tmp_path / "seal.key", 0o600)
    with pytest.raises(popart_exception, match="is no key of 32 bytes"):
        seal._read(tmp_path / "seal.key")
