"""Random keys of nodes and subgraphs, derived from the key of the program."""

from __future__ import annotations

from typing import Any

import jax


def of_program(key: Any) -> Any:
    """The key itself; a fixed one where there is none."""
    return jax.random.key(0) if key is None else key


def of_node(key: Any, number: int) -> Any:
    """The key of a node, for each number another."""
    return jax.random.fold_in(of_program(key), number)


def of_body(key: Any, number: int, iteration: Any = None) -> Any:
    """The key of a node's subgraph, in a loop for each pass another; None where there is none."""
    if key is None:
        return None
    key = jax.random.fold_in(key, number)
    return key if iteration is None else jax.random.fold_in(key, iteration)
