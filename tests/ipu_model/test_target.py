"""Targets: data with provenance, discovery, pytree behaviour, derivatives."""

from __future__ import annotations

import dataclasses
import json
from importlib import metadata

import jax
import pytest

from ipu_model import target, targets
from ipu_model.fitted import fitted_constants

NAMES = ("mk1", "mk2", "bow", "c600")


@pytest.mark.parametrize("name", NAMES)
def test_every_constant_says_where_it_comes_from(name):
    chip = target.get(name)
    wanted = target.MACHINE_FIELDS | (set(target.LEAF_FIELDS) - {"fitted"})
    assert set(chip.provenance) == wanted
    for constant, row in chip.provenance.items():
        assert row["source"], constant
        assert row["unit"], constant


@pytest.mark.parametrize(("name", "tflops"), [("mk1", 124.5), ("mk2", 250.6), ("bow", 348.6), ("c600", 280.0)])
def test_published_peaks(name, tflops):
    assert target.get(name).peak_flops("half", "half") / 1e12 == pytest.approx(tflops, rel=2e-3)


def test_float_peaks_of_both_generations():
    assert target.get("mk1").peak_flops("float", "float") / 1e12 == pytest.approx(31.1, rel=2e-3)
    assert target.get("mk2").peak_flops("float", "float") / 1e12 == pytest.approx(62.6, rel=2e-3)


@pytest.mark.parametrize(("alias", "name"), [("GC2", "mk1"), ("gc200", "mk2"), ("ipu2", "mk2"), ("ipu21", "c600")])
def test_aliases(alias, name):
    assert target.get(alias).name == name


def test_unknown_target_lists_the_known_ones():
    with pytest.raises(KeyError, match=r"'mk3'.*mk1.*mk2"):
        target.get("mk3")


def test_own_targets_are_entry_points_of_the_package():
    text = (targets.FOLDER.parents[1] / "pyproject.toml").read_text()
    section = text.split(f'[project.entry-points."{target.ENTRY_POINT_GROUP}"]')[1].split("\n[")[0]
    for name in NAMES:
        assert f'{name} = "ipu_model.targets:{name}"' in section


def test_third_party_target_is_found_by_entry_point(monkeypatch):
    mine = dataclasses.replace(target.get("mk2"), name="lab")
    monkeypatch.setitem(globals(), "LAB", mine)
    entry = metadata.EntryPoint("lab", f"{__name__}:LAB", target.ENTRY_POINT_GROUP)
    monkeypatch.setattr(entry.__class__, "load", lambda self: mine)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [entry] if group == target.ENTRY_POINT_GROUP else [])
    assert target.get("lab").name == "lab"
    assert "mk2" in target.available()


def test_missing_and_unknown_constants_are_named():
    table = dict(target.get("mk2").provenance)
    del table["tiles"]
    table["tyles"] = {"value": 1, "unit": "", "source": ""}
    with pytest.raises(ValueError, match=r"missing constants \['tiles'\], unknown constants \['tyles'\]"):
        target.from_constants("x", "ipu2", table)


def test_round_trip_through_a_data_file():
    chip = target.get("bow").replace(clock_hz=1.5e9, tiles=100)
    data = json.loads(target.to_json(chip))
    again = target.from_constants(data["name"], data["architecture"], data["constants"])
    assert again.machine == chip.machine
    assert again.clock_hz == 1.5e9
    assert again.fitted == chip.fitted  # without them a product took a quarter less
    assert target.from_constants(data["name"], data["architecture"], data["constants"], {}).fitted == {}


def test_pytree_leaves_are_the_prices_and_structure_is_static():
    chip = target.get("mk2")
    leaves, structure = jax.tree.flatten(chip)
    assert all(isinstance(leaf, float) for leaf in leaves)
    again = jax.tree.unflatten(structure, [2 * leaf for leaf in leaves])
    assert again.clock_hz == 2 * chip.clock_hz
    assert again.machine == chip.machine
    assert again.fitted.keys() == chip.fitted.keys()


def test_gradient_of_time_with_respect_to_the_clock():
    chip = target.get("mk2")
    slope = jax.grad(lambda t: t.seconds(1e6))(chip).clock_hz
    assert slope == pytest.approx(-1e6 / chip.clock_hz**2, rel=1e-5)


def test_fitted_constants_carry_their_source():
    rows = json.loads((targets.FOLDER / "fitted.json").read_text())["constants"]
    assert rows.keys() == fitted_constants().keys()
    assert all(row["source"] for row in rows.values())
