"""Cost rules and whole cost models come in by entry point: ours and anybody's through the same door."""

from __future__ import annotations

import importlib.metadata
import logging
import time
import tomllib
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import ipu_model
from ipu_model import costs
from ipu_model.costs import OpCost, Superstep
from ipu_model.target import available

ROOT = Path(__file__).parents[2]


def slow_sine(op, ctx):
    return OpCost((Superstep("Slow", 12345.0, tiles=1, vertices=1, vertex="third::Party"),), elementwise=True)


SINE = {"sin": slow_sine}
REAL = importlib.metadata.entry_points


@pytest.fixture
def plugin(monkeypatch):
    """Pretend that a distribution with these entry points is installed."""

    def install(group, **entries):
        extra = [importlib.metadata.EntryPoint(n, v, group) for n, v in entries.items()]
        monkeypatch.setattr(
            importlib.metadata, "entry_points", lambda **q: [*REAL(**q), *(extra if q.get("group") == group else [])]
        )
        costs.rules.cache_clear()

    yield install
    costs.rules.cache_clear()


def test_our_own_rules_are_declared_as_entry_points():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert declared["popart_jax.cost_rules"] == costs.BUILTIN
    assert set(available()) >= set(declared["popart_jax.targets"])


def test_a_rule_from_outside_replaces_ours(plugin):
    plugin("popart_jax.cost_rules", third="tests.ipu_model.test_plugins:SINE")
    r = ipu_model.profile(jnp.sin, jnp.ones(8))
    assert r.cycles.compute == 12345.0
    assert r.vertices[0].name == "third::Party"


def test_a_broken_plugin_is_named_and_left_out(plugin, caplog):
    plugin("popart_jax.cost_rules", broken="no_such_module:RULES")
    with caplog.at_level(logging.WARNING):
        r = ipu_model.profile(jnp.sin, jnp.ones(8))
    assert "'broken'" in caplog.text
    assert not r.unpriced


WORDS = {"sin": lambda op, ctx: "free"}


def failing(op, ctx):
    raise ZeroDivisionError("no rate")


FAILS = {"sin": failing}
LIST = ["sin"]


def test_a_rule_that_gives_no_cost_is_named(plugin):
    plugin("popart_jax.cost_rules", third="tests.ipu_model.test_plugins:WORDS")
    with pytest.raises(TypeError, match="the cost rule of 'sin' gives is 'free', expected an ipu_model"):
        ipu_model.profile(jnp.sin, jnp.ones(8))


def test_an_error_in_a_rule_says_which_and_for_what(plugin):
    plugin("popart_jax.cost_rules", third="tests.ipu_model.test_plugins:FAILS")
    with pytest.raises(ZeroDivisionError, match="no rate") as told:
        ipu_model.profile(jnp.sin, jnp.ones(8))
    assert "cost rule of 'sin' for float32[8]: <function failing" in told.value.__notes__[0]


def test_rules_that_are_no_table_are_left_out(plugin, caplog):
    plugin("popart_jax.cost_rules", third="tests.ipu_model.test_plugins:LIST")
    assert not ipu_model.profile(jnp.sin, jnp.ones(8)).unpriced
    assert "'third'" in caplog.text


def lab():
    return ipu_model.get_target("bow").replace(name="lab")


class Silent:
    """A cost model that says nothing."""

    def profile_jaxpr(self, jaxpr, **how):
        return None


NUMBER, SILENT = 3, Silent()


@pytest.mark.parametrize("name", ["Lab_2", "lab_2", "LAB_2"])
def test_names_of_targets_are_found_in_any_case(plugin, name):
    plugin("popart_jax.targets", Lab_2="tests.ipu_model.test_plugins:lab")
    assert ipu_model.get_target(name).name == "lab"


@pytest.mark.parametrize(
    ("where", "kind", "told", "note"),
    [
        ("NUMBER", TypeError, "target 'mine': tests.ipu_model.test_plugins:NUMBER gave 3, expected", None),
        (
            "nowhere",
            AttributeError,
            "nowhere",
            "while loading the target 'mine' from tests.ipu_model.test_plugins:nowhere",
        ),
        ("SILENT", TypeError, "what profile_jaxpr of 'mine' gives is None, expected an ipu_model.Report", None),
    ],
)
def test_a_target_that_is_none_is_named(plugin, where, kind, told, note):
    plugin("popart_jax.targets", mine=f"tests.ipu_model.test_plugins:{where}")
    with pytest.raises(kind, match=told) as error:
        ipu_model.profile(jnp.sin, jnp.ones(8), target="mine")
    assert getattr(error.value, "__notes__", [None]) == [note]


def test_unknown_target_lists_what_is_registered():
    with pytest.raises(KeyError, match="mk2"):
        ipu_model.profile(jnp.sin, jnp.ones(8), target="mk9")


def chain(x, w):
    for _ in range(8):
        x = jnp.tanh(x @ w)
    return x.sum()


def test_roofline_of_this_machine_is_near_the_measured_time():
    x = jnp.ones((768, 768), jnp.float32)
    r = ipu_model.profile(chain, x, x, target="roofline")
    assert r.target["architecture"] == "roofline"
    assert r.cycles.exchange == r.cycles.sync == 0
    fn = jax.jit(chain)
    jax.block_until_ready(fn(x, x))
    best = min(_timed(fn, x) for _ in range(5))
    assert best / 20 < r.schedule.seconds < best * 20
    assert "Total cycles" in r.summary()


def _timed(fn, x):
    start = time.perf_counter()
    jax.block_until_ready(fn(x, x))
    return time.perf_counter() - start


def test_roofline_takes_the_longer_of_arithmetic_and_traffic():
    from ipu_model.roofline import Roofline

    machine = Roofline("toy", flops_per_second=1e9, bytes_per_second=1e9, launch_seconds=0.0, memory_bytes=1 << 30)
    jaxpr = jax.make_jaxpr(lambda a: a @ a)(jnp.ones((64, 64)))
    r = ipu_model.profile_jaxpr(jaxpr, target=machine)
    assert r.total_cycles == pytest.approx(2 * 64**3)
    jaxpr = jax.make_jaxpr(lambda a: a + a)(jnp.ones((1000,)))
    assert ipu_model.profile_jaxpr(jaxpr, target=machine).total_cycles == pytest.approx(3 * 4000)


def test_a_launch_is_paid_once():
    from ipu_model.roofline import Roofline

    def priced(launch):
        machine = Roofline("toy", 1e9, 1e9, launch_seconds=launch, memory_bytes=1 << 30)
        jaxpr = jax.make_jaxpr(chain)(jnp.ones((64, 64)), jnp.ones((64, 64)))
        options = ipu_model.ModelOptions(samples_per_step=64)
        return ipu_model.profile_jaxpr(jaxpr, target=machine, options=options)

    reports = priced(0.0), priced(1e-3)
    assert [r.assumptions for r in reports] == [
        (),
        ("a launch of 1,000 µs is in the time of a run, and in no operation",),
    ]
    without, slow = (r.schedule for r in reports)
    assert slow.seconds == pytest.approx(without.seconds + 1e-3)
    assert slow.cycles == pytest.approx(without.cycles + 1e6)
    assert slow.samples_per_second == pytest.approx(64 / slow.seconds)


@pytest.mark.parametrize(
    ("dtype", "n", "seconds"),
    [
        ("float16", 8192, 2 * 8192**3 / 312e12),  # bound by arithmetic
        ("float32", 8192, 2 * 8192**3 / 156e12),
        ("float16", 64, 3 * 2 * 64**2 / 7.219e12),  # operands in the cache: bound by its bandwidth
    ],
)
def test_a_gpu_by_its_published_figures(dtype, n, seconds):
    x = jax.ShapeDtypeStruct((n, n), dtype)
    r = ipu_model.profile(lambda a, b: a @ b, x, x, target="a100")
    assert r.target["architecture"] == "roofline"
    assert r.target["peakFlops"] == 624e12
    assert r.schedule.seconds - 5e-6 == pytest.approx(seconds, rel=1e-3)
    assert r.fits


def test_traffic_that_no_cache_holds_takes_the_memory_of_the_device():
    x = jax.ShapeDtypeStruct((1 << 26,), jnp.float32)
    r = ipu_model.profile(lambda a: a + a, x, target="a100")
    assert r.schedule.seconds == pytest.approx(3 * 4 * (1 << 26) / 1555e9 + 5e-6, rel=1e-3)
    assert not ipu_model.profile(lambda a: a + a, jax.ShapeDtypeStruct((1 << 34,), jnp.float32), target="a100").fits


def test_a_type_without_a_figure_is_refused():
    x = jax.ShapeDtypeStruct((8, 8), jnp.uint8)
    with pytest.raises(ValueError, match="a100: no peak rate of uint8 products"):
        ipu_model.profile(lambda a: a @ a, x, target="a100")
