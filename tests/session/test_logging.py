"""Loggers and the environment (semantics 16), in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import popart_jax
from popart_jax.logs import module_logger
{setup}
for level in ("debug", "info", "warning", "error", "critical"):
    getattr(module_logger("session"), level)("session-" + level)
    getattr(module_logger("ir"), level)("ir-" + level)
log = popart_jax.getLogger()
log.debug("python-debug"); log.info("python-info"); log.warn("python-warning"); log.error("python-error")
"""


def run(setup: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("POPART_LOG")}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(setup=setup)],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=True,
    )


def levels(text: str, module: str) -> set[str]:
    return {word for word in ("debug", "info", "warning", "error", "critical") if f"{module}-{word}" in text}


def test_default_is_warn_on_stderr():
    done = run()
    assert levels(done.stderr, "session") == {"warning", "error", "critical"}
    assert levels(done.stderr, "python") == {"warning", "error"}
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("TRACE", {"debug", "info", "warning", "error", "critical"}),
        ("INFO", {"info", "warning", "error", "critical"}),
        ("ERR", {"error", "critical"}),
        ("CRITICAL", {"critical"}),
        ("OFF", set()),
        ("ERROR", set()),
        ("info", set()),
    ],
)
def test_levels_and_the_unknown_level(level, expected):
    assert levels(run(POPART_LOG_LEVEL=level).stderr, "session") == expected
    assert levels(run(f"popart_jax.getLogger().setLevel({level!r})").stderr, "session") == expected


def test_modules_have_their_own_level():
    done = run('popart_jax.getLogger("session").setLevel("DEBUG")')
    assert "debug" in levels(done.stderr, "session")
    assert "debug" not in levels(done.stderr, "ir")
    done = run('popart_jax.getLogger("session").setLevel("DEBUG"); popart_jax.getLogger("all").setLevel("OFF")')
    assert done.stderr == ""


def test_destinations_and_format(tmp_path):
    assert "session-error" in run(POPART_LOG_DEST="stdout").stdout
    path = tmp_path / "log.txt"
    path.write_text("old")
    run(POPART_LOG_DEST=str(path), POPART_LOG_FORMAT="<%l %L %n> %v %%")
    lines = path.read_text().splitlines()
    assert lines[0] == "<warning W session> session-warning %"
    first = run().stderr.splitlines()[0]
    assert first.endswith("W: session-warning")
    assert first[4] == "-"
    assert "Z" in first


def test_config_file(tmp_path):
    config = tmp_path / "levels.json"
    config.write_text(json.dumps({"popart:ir": "DEBUG", "popart:session": "OFF"}))
    done = run(POPART_LOG_CONFIG=str(config))
    assert "debug" in levels(done.stderr, "ir")
    assert levels(done.stderr, "session") == set()


@pytest.mark.parametrize("content", ["{broken", "[1]", '{"popart:ir": 3}', None])
def test_a_broken_config_file_is_reported_and_nothing_else_changes(tmp_path, content):
    config = tmp_path / "levels.json"
    if content is not None:
        config.write_text(content)
    done = run(POPART_LOG_CONFIG=str(config))
    assert done.returncode == 0
    assert "POPART_LOG_CONFIG" in done.stderr
    assert "session-error" in done.stderr


def test_a_destination_that_cannot_be_written_is_reported(tmp_path):
    done = run(POPART_LOG_DEST=str(tmp_path / "none" / "log.txt"))
    assert done.returncode == 0
    assert "POPART_LOG_DEST" in done.stderr
    assert "session-error" in done.stderr
