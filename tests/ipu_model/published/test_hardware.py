"""Which chips a row's words mean, and how many."""

from __future__ import annotations

import pytest

from ipu_model.published.hardware import chip_name, system_size


@pytest.mark.parametrize(("hardware", "count"), [
    ("Bow Pod64", 64), ("GC200 POD16", 16), ("Bow Pod_16", 16), ("IPU-POD-64", 64), ("C600, 1 IPU", 1),
    ("GC200, 4 IPUs", 4), ("2-IPU Mk2", 2), ("two GC200 IPUs", 2), ("16 Bow IPUs", 16), ("IPU-M2000", 4),
    ("1 IPU-M2000", 4), ("4 Bow-2000", 16), ("2 x Bow-2000", 8), ("2 x C600", 2), ("2xC600", 2), ("2 C600 cards", 2),
    ("C600 x2", 2), ("quad C600", 4), ("DSS 8440 with 16 GC2", 16), ("GC200", 1), ("GC200 IPU", 1), ("Mk2 IPUModel", 1),
    ("GC2 (ipu1) full 1216 tiles", 1), ("1 IPU, about 900 MB", 1),
    ("1 Mk2-class IPU (card not stated; PopRT was released for the C600)", 1),
])  # fmt: skip
def test_sizes_of_systems(hardware, count):
    assert system_size(hardware) == count


def test_a_system_of_no_ipus_is_refused():
    with pytest.raises(ValueError, match="at least one IPU"):
        system_size("C600, 0 IPUs")


@pytest.mark.parametrize(("hardware", "chip"), [
    ("IPU21", "bow"), ("Dell DSS 8440", "mk1"), ("IPU Mk I", "mk1"), ("Mark 2", "mk2"), ("MK2", "mk2"), ("", ""),
])  # fmt: skip
def test_names_of_chips(hardware, chip):
    assert chip_name(hardware) == chip
