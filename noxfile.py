"""The commands of continuous integration, for ``nox`` in an environment with ``.[test,lint,docs,package]``."""

from __future__ import annotations

import tempfile
from pathlib import Path

import nox

nox.options.default_venv_backend = "none"  # the environment it is called from has all that is needed
nox.options.sessions = ["lint", "tests"]


@nox.session
def lint(session: nox.Session) -> None:
    """Lint, format and types, as the hooks of pre-commit have them."""
    session.run("pre-commit", "run", "--all-files", "--hook-stage", "pre-push", external=True)


@nox.session
def tests(session: nox.Session) -> None:
    """The tests; arguments after ``--`` go to pytest."""
    session.run("python", "-m", "pytest", "-n", "2", *session.posargs, external=True)


@nox.session
def processes(session: nox.Session) -> None:
    """The tests that start further Python processes, which take seconds each."""
    session.run("python", "-m", "pytest", "-n", "2", "-m", "processes and not sweep", *session.posargs, external=True)


@nox.session(venv_backend="uv")
def lowest(session: nox.Session) -> None:
    """The tests with the oldest versions that pyproject.toml allows; needs `uv`."""
    session.install("--resolution", "lowest-direct", "-e", ".[test]")
    session.run("python", "-m", "pytest", "-n", "2", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation into ``out/site``; warnings, broken links among them, are errors."""
    session.run("mkdocs", "build", "--strict", external=True)


@nox.session
def package(session: nox.Session) -> None:
    """Build the distributions, check their metadata, and use the wheel in an empty environment."""
    with tempfile.TemporaryDirectory() as folder:
        session.run("python", "-m", "build", "--outdir", folder, external=True)
        built = sorted(str(file) for file in Path(folder).iterdir())
        session.run("twine", "check", "--strict", *built, external=True)
    session.run("python", "-m", "pytest", "-m", "packaging", "tests/packaging", external=True)
