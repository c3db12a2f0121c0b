"""Commands that the pages name are there: modules, sub-commands, flags, sessions of nox, scripts."""

from __future__ import annotations

import argparse
import importlib.util
import re
from pathlib import Path

import pytest

from popart_jax.__main__ import parser
from popart_jax.commands import COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
OURS = ("popart_jax", "ipu_model", "patterns", "benchmarks", "tests")
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`((?:python3? |nox |poprun |bash )[^`]+)`")
CODE = re.compile(r"```.*?```", re.DOTALL)


def commands() -> list[tuple[str, str]]:
    """Every command of every page but the changelog, whose commands are those of their time."""
    found: list[tuple[str, str]] = []
    for page in PAGES:
        if page.name.lower() == "changelog.md":
            continue
        text = page.read_text()
        lines = "\n".join(SHELL.findall(text)).splitlines()
        for line in [*lines, *SPAN.findall(CODE.sub("", text).replace("\n", " "))]:
            parts = re.split(r"\s+#|&&|\|", line)
            found += [(str(page.relative_to(ROOT)), part.strip()) for part in parts if part.strip()]
    return found


MODULES = [(page, c) for page, c in commands() if re.search(rf"python3? -m ({'|'.join(OURS)})\b", c)]


def flags(words: list[str]) -> set[str]:
    return {word.partition("=")[0] for word in words if word.startswith("--")}


def known_flags(name: str) -> set[str]:
    """The flags of a sub-command of ours."""
    (sub,) = (a for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    return {flag for action in sub.choices[name]._actions for flag in action.option_strings}


def source(module: str) -> str:
    """The text of a module, or of all modules of a package, and of the options that it takes from the boards."""
    base = ROOT / module.replace(".", "/")
    files = base.rglob("*.py") if base.is_dir() else [base.with_suffix(".py"), *base.parent.glob("command.py")]
    text = "".join(file.read_text() for file in files)
    return text + (ROOT / "benchmarks/board.py").read_text() * ("add_timing(" in text)


def test_there_are_commands() -> None:
    assert len(MODULES) > 50


@pytest.mark.parametrize(("page", "command"), MODULES)
def test_a_module_is_there_with_its_flags(page: str, command: str) -> None:
    words = command[command.index("-m ") + 3 :].split()
    module, rest = words[0], words[1:]
    assert importlib.util.find_spec(module) is not None
    if module == "popart_jax" and rest:
        if rest[0].endswith(".py"):  # a script: what follows are its own arguments
            assert not rest[0].startswith("examples/") or (ROOT / rest[0]).is_file()
            return
        assert rest[0] in COMMANDS
        script = next((k for k, word in enumerate(rest) if word.endswith(".py")), len(rest))
        assert flags(rest[:script]) <= known_flags(rest[0])
    else:
        text = source(module)
        for flag in flags(rest):
            assert f'"{flag}"' in text or f'"{flag.removeprefix("--")}"' in text, f"{module} has no {flag}"


@pytest.mark.parametrize(
    ("page", "script"),
    sorted({(p, s) for p, c in commands() for s in re.findall(r"\b(?:python|bash) ([\w./]+/\w+\S*)", c)}),
)
def test_a_script_is_there(page: str, script: str) -> None:
    assert (ROOT / script).is_file()


def test_the_sessions_of_nox_are_there() -> None:
    sessions = set(re.findall(r"@nox\.session.*\ndef (\w+)", (ROOT / "noxfile.py").read_text()))
    named = {name for _, command in commands() for name in re.findall(r"\bnox -s (\w+)", command)}
    assert named == sessions


@pytest.mark.parametrize(("page", "command"), [(p, c) for p, c in commands() if "pytest" in c.split()])
def test_the_tests_that_a_page_runs_are_there(page: str, command: str) -> None:
    for path in re.findall(r"\btests/[\w./]+", command):
        assert (ROOT / path).exists()
