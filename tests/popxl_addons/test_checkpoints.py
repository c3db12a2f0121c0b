"""What checkpoints refuse, before anything is lost."""

from __future__ import annotations

import os

import numpy as np
import pytest

import popart_jax.popxl_addons as addons
from popart_jax import popxl

ZEROS = np.zeros((2,), np.float32)


def session(max_checkpoints=1, **data):
    """A task session with a variable for each array, to each of which a run adds 1."""
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        state = addons.NamedTensors.from_dict({name: popxl.variable(x, name=name) for name, x in data.items()})
        for t in state.tensors:
            t += 1
    return addons.TaskSession([], [], state, max_checkpoints, ir)


def mapped(path):
    path.parent.mkdir(exist_ok=True)
    return np.memmap(path, np.float32, "w+", shape=(2,))


def test_a_folder_that_is_not_there():
    task = session(w=ZEROS)
    with pytest.raises(FileNotFoundError, match="no checkpoint in"):
        task.load_checkpoint("nowhere")


def test_words_and_numbers(tmp_path):
    task = session(w=ZEROS)
    task.save_checkpoint(str(tmp_path / "one"))
    with pytest.raises(ValueError, match="report_missing must be one of"):
        task.load_checkpoint(str(tmp_path / "one"), "warning")
    with pytest.raises(ValueError, match="`max_checkpoints` must be at least 1, got 0"):
        session(0, w=ZEROS)


def test_session_state_may_be_numbers_of_numpy_and_what_json_lacks_costs_no_checkpoint(tmp_path):
    task = session(w=ZEROS)
    task.add_session_state_info({"rate": np.float32(0.5), "epoch": np.int64(3)})
    task.save_checkpoint(str(tmp_path / "one"))
    task.load_checkpoint(str(tmp_path / "one"))
    assert task.session_state == {"steps": 0, "rate": 0.5, "epoch": 3}
    task.add_session_state_info({"seen": {1, 2}})
    with pytest.raises(TypeError, match="JSON can't hold"):
        task.save_checkpoint(str(tmp_path / "two"))
    assert os.listdir(tmp_path) == ["one"]


def test_mapped_files_of_one_name_would_overwrite_each_other(tmp_path):
    task = session(a=mapped(tmp_path / "a" / "w.npy"), b=mapped(tmp_path / "b" / "w.npy"))
    with pytest.raises(ValueError, match=r"'w\.npy'\} is that of several"):
        task.save_checkpoint(str(tmp_path / "saved"))


def test_a_mapped_file_of_another_size(tmp_path):
    task = session(a=mapped(tmp_path / "w.npy"))
    task.save_checkpoint(str(tmp_path / "saved"))
    (tmp_path / "saved" / "model" / "w.npy").write_bytes(bytes(12))
    with pytest.raises(ValueError, match="has 12 bytes, the variable 'a' takes 8"):
        task.load_checkpoint(str(tmp_path / "saved"))


def test_mapped_files_load_into_variables_that_are_not_mapped(tmp_path):
    task = session(a=mapped(tmp_path / "a.npy"), b=ZEROS)
    with task:
        task.run()
    task.save_checkpoint(str(tmp_path / "saved"))
    plain = session(a=ZEROS, b=ZEROS)
    plain.load_checkpoint(str(tmp_path / "saved"), "error")
    found = plain.get_named_tensors_data().to_dict()
    assert {name: x.tolist() for name, x in found.items()} == {"a": [1, 1], "b": [1, 1]}
    short = session(a=np.zeros((3,), np.float32), b=ZEROS)
    with pytest.raises(ValueError, match="has 8 bytes, the variable 'a' takes 12"):
        short.load_checkpoint(str(tmp_path / "saved"))
