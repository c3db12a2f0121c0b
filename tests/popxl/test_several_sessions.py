"""Several sessions of one Ir, or of several, in use at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from popart_jax import popxl
from popart_jax.popxl import ops

ONES = np.ones((2,), np.float32)


def counter():
    """A program that adds a stream to a variable and sends the variable."""
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        v = popxl.variable(0 * ONES, name="v")
        source, sink = popxl.h2d_stream((2,), popxl.float32), popxl.d2h_stream((2,), popxl.float32)
        ops.add_(v, ops.host_load(source))
        ops.host_store(sink, v)
    return ir, v, source, sink


def test_each_session_of_an_ir_reads_its_own_device():
    ir, v, source, _ = counter()
    trained, other = popxl.Session(ir), popxl.Session(ir)
    with trained:
        for _ in range(3):
            trained.run({source: ONES})
        with other:
            np.testing.assert_array_equal(other.get_tensor_data(v), 0 * ONES)
            other.run({source: ONES})
        np.testing.assert_array_equal(trained.get_tensor_data(v), 3 * ONES)
    np.testing.assert_array_equal(other.get_tensor_data(v), 3 * ONES)


def test_what_one_session_was_given_survives_that_another_one_downloads():
    ir, v, source, sink = counter()
    first, second = popxl.Session(ir), popxl.Session(ir)
    with first, second:
        second.run({source: ONES})
        first.write_variable_data(v, 10 * ONES)
        np.testing.assert_array_equal(second.get_tensor_data(v), ONES)
        np.testing.assert_array_equal(first.get_tensor_data(v), 10 * ONES)
        np.testing.assert_array_equal(first.run({source: ONES})[sink], 11 * ONES)


def test_a_session_refuses_variables_of_another_ir():
    ir, *_ = counter()
    _, foreign, *_ = counter()
    session = popxl.Session(ir)
    for call in (lambda: session.get_tensor_data(foreign), lambda: session.write_variable_data(foreign, ONES)):
        with pytest.raises(ValueError, match="belongs to Ir"):
            call()


def test_outputs_are_those_of_the_compiled_program():
    """Another number of transfers, set for a session to come, changes nothing for the one that was made."""
    ir, _, source, sink = counter()
    ir.num_host_transfers = 2
    with ir.main_graph, popxl.in_sequence():
        ops.host_store(sink, ops.host_load(source))
    session = popxl.Session(ir)
    ir.num_host_transfers = 1
    room = np.zeros((3, 2), np.float32)
    with session:
        session.run_with_outputs({source: np.stack([ONES, 2 * ONES])}, {sink: room})
    np.testing.assert_array_equal(room, [ONES, 2 * ONES, 0 * ONES])


def test_one_session_in_several_threads_takes_every_step_once():
    ir, v, source, sink = counter()
    session = popxl.Session(ir)
    with session, ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: session.run({source: ONES})[sink][0], range(80)))
    assert sorted(found) == list(range(1, 81))
    np.testing.assert_array_equal(session.get_tensor_data(v), 80 * ONES)


def test_weights_are_read_while_another_thread_trains():
    ir, v, source, _ = counter()
    session = popxl.Session(ir)
    with session, ThreadPoolExecutor(3) as pool:
        trained = [pool.submit(session.run, {source: ONES}) for _ in range(60)]
        seen = [pool.submit(session.get_tensor_data, v) for _ in range(30)]
        assert all(np.ptp(x.result()) == 0 for x in seen)
        assert len([t.result() for t in trained]) == 60
        np.testing.assert_array_equal(session.get_tensor_data(v), 60 * ONES)
