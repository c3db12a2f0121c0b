"""JAX is imported with the plugins that it would find by itself."""

import importlib.metadata
from pathlib import Path

from popart_jax._compat.jax_plugins import quick_discovery


def install(folder: Path, name: str) -> None:
    place = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    place.mkdir()
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")


def names(asks: str, folder: Path) -> set[str]:
    """Names of the distributions in a folder that a module of this name is told of."""
    code = "found = {d.metadata['Name'] for d in metadata.distributions(path=[folder])}"
    inside = {"__name__": asks, "metadata": importlib.metadata, "folder": str(folder)}
    exec(code, inside)
    return inside["found"]  # pyright: ignore[reportReturnType]


def test_jax_alone_is_told_of_plugins_alone(tmp_path: Path) -> None:
    every = {"jax-rocm7-plugin", "jax", "numpy"}
    for name in every:
        install(tmp_path, name)
    with quick_discovery():
        assert names("jax._src.numpy.array_constructors", tmp_path) == {"jax-rocm7-plugin"}
        assert names("another", tmp_path) == every
    assert names("jax._src.numpy.array_constructors", tmp_path) == every
