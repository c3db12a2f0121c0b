"""The memory limit that nobody set: the least of the machine, the control group and `ulimit`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from popart_jax._process import memory

_NONE = 9223372036854771712  # what version 1 says where nothing is set


def group(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(f"{content}\n", encoding="ascii")


def allowed(tmp_path: Path, listing: str) -> tuple[int, int]:
    (tmp_path / "listing").write_text(listing, encoding="ascii")
    found = memory.groups_at(tmp_path / "groups", tmp_path / "listing")
    return memory.memory_allowed(found), memory.memory_free(found)


@pytest.mark.parametrize("where", ["job/step", "job", ""])
def test_version_2(tmp_path: Path, where: str) -> None:
    """The group itself, the one around it, and the root that a container sees of a path outside of it."""
    group(
        tmp_path / "groups" / where, memory__max=3 << 20, memory__current=2 << 20, memory__stat="inactive_file 1048576"
    )
    if where != "job/step":
        group(tmp_path / "groups" / "job/step", memory__max="max")
    assert allowed(tmp_path, "0::/job/step\n") == (3 << 20, 2 << 20)


def test_version_1(tmp_path: Path) -> None:
    group(tmp_path / "groups/memory", memory__limit_in_bytes=_NONE)
    group(
        tmp_path / "groups/memory/docker/a", memory__limit_in_bytes=5 << 20, memory__usage_in_bytes=4 << 20,
        memory__stat="inactive_file 1\ntotal_inactive_file 2097152",
    )  # fmt: skip
    assert allowed(tmp_path, "8:pids:/\n4:memory:/docker/a\n0::/\n") == (5 << 20, 3 << 20)


@pytest.mark.parametrize("listing", ["", "nonsense", "4:cpu:/a\n", "0::/../../..\n", "0::/gone\n"])
def test_no_group_is_the_machine(tmp_path: Path, listing: str) -> None:
    assert allowed(tmp_path, listing)[0] == memory.memory_allowed(())


@pytest.mark.processes
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ulimit")
@pytest.mark.parametrize("kind", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_what_ulimit_leaves(kind: str) -> None:
    """A tensor that the machine holds and the process may not is an error, not the end of it."""
    code = f"""
import resource
import numpy as np
from onnx import helper, TensorProto
import popart_jax
resource.setrlimit(resource.{kind}, (6 << 30, 6 << 30))
print(popart_jax.limits.memory == 6 << 30)
fill = helper.make_node("ConstantOfShape", ["s"], ["y"])
made = helper.make_model(helper.make_graph([fill], "g", [helper.make_tensor_value_info("s", TensorProto.INT64, [1])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]), opset_imports=[helper.make_opsetid("", 17)])
fn, params = popart_jax.to_jax(made)
try:
    fn(params, {{"s": np.array([2 << 30])}})
except popart_jax.popart_exception as err:
    print(err)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("True\n"), ran.stdout
    assert "needs 8.59 GB" in ran.stdout
