"""The chip that a row's ``hardware`` names, and how many of them."""

from __future__ import annotations

import re

IPUS_OF_A_MACHINE = 4
CHIPS = (
    (r"bow|ipu ?21\b", "bow"),
    ("c600", "c600"),
    (r"gc200|\bmk[ -]?2|mark[ -]?(2|ii)\b|\bmk[ -]?ii\b|ipu ?2\b|m2000|pod|1472", "mk2"),
    (r"\bg?c2\b|\bmk[ -]?1|mark[ -]?(1|i)\b|\bmk[ -]?i\b|ipu ?1\b|dss[ -]?8440|1216", "mk1"),
)
OTHERS = r"nvidia|geforce|rtx|\b[ahv]100\b|[gct]pu\b|xeon|epyc|radeon|gaudi"
WORDS = {"two": 2, "dual": 2, "three": 3, "four": 4, "quad": 4, "eight": 8, "sixteen": 16}
COUNT = r"(?<![\w.-])(\d+)(?: ?[x×] ?|[ -])"  # a number of its own, with what it counts behind it
OF = r"(?:(?:bow|mk ?2|mk ?1|gc200|gc2|c600|graphcore|colossus)(?:-class)?[ -])?"  # "16 Bow IPUs"
POD = re.compile(r"\bpods?[\s_-]*(\d+)|[a-z]pod[\s_-]*(\d+)")
MACHINES = re.compile(rf"(?:{COUNT})?\b(?:ipu-)?(?:m2000|bow[ -]?2000)(?:s\b)?(?: ?[x×] ?(\d+))?")
IPUS = re.compile(rf"{COUNT}{OF}ipus?\b(?!-m2000)")
CARDS = re.compile(rf"{COUNT}(?:c600|gc200|gc2|bow|mk ?2|mk ?1)(?: (?:cards?|chips?))?\b")
TIMES = re.compile(r"\b(?:c600|gc200|gc2|bow|mk ?2|mk ?1|ipus?)(?: (?:cards?|chips?))?,? ?[x×] ?(\d+)\b")


def chip_name(hardware: str) -> str:
    """The target of a text, empty where it names none."""
    return next((name for pattern, name in CHIPS if re.search(pattern, hardware.lower())), "")


def is_other(hardware: str) -> bool:
    """Whether a text names machines that are no IPU."""
    text = hardware.lower()
    return not chip_name(text) and "ipu" not in text and bool(re.search(OTHERS, text))


def system_size(hardware: str) -> int:
    """IPUs of the system that a text names: those that it counts, four in an M2000 or Bow-2000, else one.

    Raises ValueError where it counts none.
    """
    text = re.sub(rf"\b({'|'.join(WORDS)})\b", lambda word: str(WORDS[word[0]]), hardware.lower())
    count = _counted(text)
    if count < 1:
        raise ValueError(f"hardware is {hardware!r}, expected at least one IPU")
    return count


def _counted(text: str) -> int:
    for pattern in (POD, IPUS):
        found = pattern.search(text)
        if found:
            return int(next(number for number in found.groups() if number))
    machines = MACHINES.search(text)
    if machines:
        return IPUS_OF_A_MACHINE * int(machines[1] or machines[2] or 1)
    found = CARDS.search(text) or TIMES.search(text)
    return int(found[1]) if found else 1
