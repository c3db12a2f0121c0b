"""Machine code in files: who can write to the folder can't make the reader run anything."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from popart_jax.errors import popart_exception
from popart_jax.execution.stored import container, seal
from popart_jax.execution.stored.container import Sealed

posix = pytest.mark.skipif(os.name != "posix", reason="rights of files are those of POSIX")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the key of a new user."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def file(home: Path, tmp_path: Path) -> Path:
    """A container with one program that doubles."""
    path = tmp_path / "7.popef"
    compiled = jax.jit(lambda x: (x + x,)).lower(jax.ShapeDtypeStruct((3,), np.float32)).compile()
    container.write(path, "7", {"": compiled}, {"w": np.arange(3)}, {"n": [1, 2]})
    return path


def rewrite(path: Path, **changed: bytes) -> None:
    """Replace members of a container."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members |= {name.replace("__", "/"): data for name, data in changed.items()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


RAN: list[int] = []


class Hostile:
    """What runs as soon as somebody unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return count, ()


def count() -> None:
    """What hostile code calls."""
    RAN.append(1)


def test_own_programs_load(file: Path) -> None:
    np.testing.assert_array_equal(Sealed(file, "7").load("")(np.ones(3, np.float32))[0], [2, 2, 2])
    assert Sealed(file, "7").load("other") is None
    assert Sealed(file, "7").note("n") == [1, 2]


def test_code_put_into_a_file_does_not_run(file: Path) -> None:
    RAN.clear()
    hostile = pickle.dumps(Hostile())
    pickle.loads(hostile)
    assert RAN == [1]  # it would
    rewrite(file, executable__main=hostile)
    with pytest.raises(popart_exception, match=r"The program 'main' in .*7\.popef was changed after it was written"):
        Sealed(file, "7").load("")
    assert RAN == [1]


def test_changed_facts_are_refused(file: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        facts = json.loads(archive.read("metadata.json"))
    rewrite(file, **{"metadata.json": json.dumps(facts | {"notes": {"n": [9]}}).encode()})
    with pytest.raises(popart_exception, match="did not seal: another user made it, or it was changed"):
        Sealed(file, "7").note("n")


def test_a_file_of_another_program_is_refused(file: Path) -> None:
    shutil.copy(file, file.with_name("8.popef"))
    with pytest.raises(popart_exception, match=r"8\.popef holds the program of key 7, not 8\."):
        Sealed(file.with_name("8.popef"), "8").load("")


def test_a_file_of_another_user_is_refused(file: Path, home: Path) -> None:
    seal.key_file().unlink()
    with pytest.raises(popart_exception, match="there is no key to check its seal with"):
        Sealed(file, "7").load("")
    seal.sealed(b"")
    with pytest.raises(popart_exception, match="copy that key from the machine where it was made"):
        Sealed(file, "7").load("")
    np.testing.assert_array_equal(container.load_variables(file)["w"], [0, 1, 2])  # plain data


def test_a_file_without_a_seal_is_refused(file: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist() if name != "seal"}
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(popart_exception, match="did not seal"):
        Sealed(file, "7").load("")


@posix
def test_the_key_is_for_its_user_alone(file: Path) -> None:
    key = seal.key_file()
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    key.chmod(0o644)
    with pytest.raises(popart_exception, match="must belong to you and be readable by you alone"):
        Sealed(file, "7").load("")
    with pytest.raises(popart_exception, match="must belong to you and be readable by you alone"):
        seal.sealed(b"more")


def test_a_short_key_is_none(file: Path) -> None:
    seal.key_file().write_bytes(b"short")
    with pytest.raises(popart_exception, match="is no key of 32 bytes"):
        Sealed(file, "7").load("")


def test_without_a_place_for_the_key_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plain").write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "plain"))
    compiled = jax.jit(lambda x: (x,)).lower(jax.ShapeDtypeStruct((3,), np.float32)).compile()
    with pytest.raises(popart_exception, match="can't be made or read"):
        container.write(tmp_path / "7.popef", "7", {"": compiled}, None)
    container.write(tmp_path / "8.popef", "8", {}, {"w": np.zeros(2)})  # variables alone need no seal
    assert sorted(p.name for p in tmp_path.iterdir()) == ["8.popef", "plain"]


def test_arrays_of_objects_are_refused(file: Path) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, w=np.array([{}], object))  # pickled by NumPy
    rewrite(file, **{"variables.npz": buffer.getvalue()})
    with pytest.raises(ValueError, match="allow_pickle=False"):
        container.load_variables(file)


@pytest.mark.processes
def test_processes_that_start_together_make_one_key(home: Path) -> None:
    code = "from popart_jax.execution.stored.seal import sealed; print(sealed(b'x'))"
    started = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    found = {process.communicate(timeout=120)[0] for process in started}
    assert len(found) == 1
    assert all(process.returncode == 0 for process in started)
    assert [p.name for p in (home / "popart_jax").iterdir()] == ["seal.key"]
