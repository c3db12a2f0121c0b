"""Variables written one after the other while the program is attached: only they are uploaded, once, when it runs."""

from __future__ import annotations

import numpy as np
import pytest

from popart_jax import popxl
from popart_jax.popxl import ops
from popart_jax.popxl._running.device_state import DeviceState

ONES = np.ones(4, np.float32)


@pytest.fixture
def uploaded(monkeypatch):
    """Names of resident arrays in the order of their uploads."""
    names, put = [], DeviceState._put
    monkeypatch.setattr(DeviceState, "_put", lambda self, name: (names.append(name), put(self, name))[1])
    return names


def program():
    """Each run adds one to all: three variables on the device, two entries of a buffer, and one that is sharded."""
    ir = popxl.Ir(replication=2)
    with ir.main_graph, popxl.in_sequence():
        plain = [popxl.variable(ONES, name=f"v{i}") for i in range(3)]
        buffer = popxl.remote_buffer((4,), popxl.float32, 2)
        remote = [popxl.remote_variable(ONES, buffer, i, name=f"r{i}") for i in range(2)]
        whole, shard = popxl.replica_sharded_variable(ONES, name="sharded")
        for t in (*plain, shard):
            ops.add_(t, popxl.constant(1.0))
        for i in range(2):
            ops.remote_store(buffer, i, ops.remote_load(buffer, i) + 1.0)
    return ir, [*plain, *remote, whole]


def test_only_what_was_written_is_uploaded_and_nothing_trained_is_lost(uploaded):
    ir, variables = program()
    written = [variables[0], variables[2], variables[4], variables[5]]
    with popxl.Session(ir, "ipu_hw") as session:
        session.run()
        uploaded.clear()
        for k, t in enumerate(written):
            session.write_variable_data(t, ONES * 10 * (k + 1))
            np.testing.assert_array_equal(session.get_tensor_data(t), ONES * 10 * (k + 1))
        assert not uploaded
        session.run()
        assert sorted(n.rsplit(":")[-1] for n in uploaded) == ["1", "2", "v0", "v2"]  # buffers and variables
        found = session.get_tensors_data(variables)
    expected = dict.fromkeys(variables, ONES * 3) | {t: ONES * (10 * k + 11) for k, t in enumerate(written)}
    for t, value in expected.items():
        np.testing.assert_array_equal(found[t], value, err_msg=t.name)


def test_what_was_written_last_is_there_after_the_context(uploaded):
    ir, variables = program()
    session = popxl.Session(ir, "ipu_hw")
    with session:
        session.write_variable_data(variables[1], ONES * 5)
        session.write_variable_data(variables[1], ONES * 6)
    np.testing.assert_array_equal(session.get_tensor_data(variables[1]), ONES * 6)
    assert uploaded.count("var:v1") == 2  # when the context was entered, and once for both
    with session:
        session.run()
    np.testing.assert_array_equal(session.get_tensor_data(variables[1]), ONES * 7)
