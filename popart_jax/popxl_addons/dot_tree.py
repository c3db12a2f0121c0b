"""An ordered tree whose nested keys may be written with dots."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeGuard, TypeVar, cast

from ..popxl import Tensor

L = TypeVar("L")
K = TypeVar("K")
V = TypeVar("V")
CLS = TypeVar("CLS", bound="DotTree[Any]")


def sanitise(name: str) -> str:
    """Replace the characters of `name` that an identifier can't have by underscores."""
    cleaned = re.sub(r"\W", "_", name)
    return f"_{cleaned}" if cleaned[:1].isdigit() else cleaned


def to_mapping(key: DotTree[K], value: DotTree[V]) -> dict[K, V]:
    """Leaves of `key` to leaves of `value`, for the flat names that both trees have."""
    targets = value.to_dict()
    return {leaf: targets[name] for name, leaf in key.to_dict().items() if name in targets}


def _is_tree(entry: Any) -> TypeGuard[DotTree[Any]]:
    return isinstance(entry, DotTree)


def _parts(key: Any) -> list[Any]:
    """The components of a key; a dotted text has several. What is no key stays one, for `_checked` to refuse."""
    return key.split(".") if isinstance(key, str) else [key]


def _checked(key: Any) -> str:
    """One component of a key: an identifier, or a number as text."""
    if re.fullmatch(r"-\d+", str(key)):
        raise ValueError(f"Numerical key cannot be negative: {key}")
    if isinstance(key, int):
        return str(key)
    if not isinstance(key, str) or not (key.isidentifier() or key.isdigit()):
        raise ValueError(f"'{key}' is not a valid python identifier")
    return key


class DictText(dict[str, Any]):
    """A plain dictionary that shows each tensor leaf as ``Tensor[...]``."""

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{k!r}: {leaf_text(v)}" for k, v in self.items()) + "}"


class TupleText(tuple[Any, ...]):
    """A plain tuple that shows each tensor leaf as ``Tensor[...]``."""

    def __repr__(self) -> str:
        inner = ", ".join(leaf_text(v) for v in self)
        return f"({inner},)" if len(self) == 1 else f"({inner})"


def leaf_text(leaf: object) -> str:
    """Text of a leaf in a container: variables and constants are shown as tensors."""
    text = repr(leaf)
    return re.sub(r"^\w+\[", "Tensor[", text) if isinstance(leaf, Tensor) else text


class DotTree(Generic[L]):
    """Nested, ordered mapping: leaves of type L at dotted names.

    Parameters
    ----------
    **kwargs
        Leaves or trees by key, in order.

    Raises
    ------
    ValueError
        A key is neither an identifier nor a number, or is there already.
    KeyError, AttributeError
        A key is missing when read by item or by attribute.
    """

    _map: dict[str, Any]

    def __init__(self, **kwargs: L | DotTree[L]) -> None:
        self.__dict__["_map"] = {}
        for key, value in kwargs.items():
            self.insert(key, value)

    def __getattr__(self, key: str) -> Any:
        if key.startswith("__") or "_map" not in self.__dict__:
            raise AttributeError(key)
        try:
            return self.get(key)
        except KeyError:
            raise AttributeError(f"No attribute '{key}'. Available Keys: {self.keys()}") from None

    def __getitem__(self, key: str | int) -> Any:
        return self.get(key)

    def _resolve(self, key: str | int) -> tuple[str, str]:
        """First component of a key as it is stored, and the rest; negative numbers count from the end.

        A component that is not there raises KeyError.
        """
        first, _, rest = str(key).partition(".")
        kind = "Key"
        if first.isdigit():
            kind = "Numerical key"
        elif re.fullmatch(r"-\d+", first):
            kind = "Negative numerical key"
            numbers = [int(k) for k in self._map if k.isdigit()]
            first = str(max(numbers, default=-1) + 1 + int(first))
        if first not in self._map:
            raise KeyError(f"{kind} does not exist: {key}. Available keys: {self.keys()}")
        return first, rest

    def _nested(self, first: str) -> DotTree[L]:
        """The tree at a key of this level; KeyError for a leaf."""
        found = self._map[first]
        if not _is_tree(found):
            raise KeyError(f"Key exists ({first}) but is not a sub-DotTree of type {type(self).__name__}")
        return found

    def get(self, key: str | int) -> Any:
        """Leaf or nested tree at a key; dotted keys descend.

        Raises
        ------
        KeyError
            There is no such key.
        """
        first, rest = self._resolve(key)
        return self._nested(first).get(rest) if rest else self._map[first]

    def insert(self, key: str | int, value: L | DotTree[L], overwrite: bool = False) -> None:
        """Put a leaf or a tree (by reference) at a key; dotted keys make nested trees.

        A nested tree that gets a new entry is replaced by a copy: other holders of it do not see the entry.

        Raises
        ------
        ValueError
            Invalid key, or a key that is taken while `overwrite` is False. The tree is then unchanged.
        """
        first, *rest = _parts(key)
        name = _checked(first)
        if name in self._map and not overwrite:
            raise ValueError(f"'{name}' already exists")
        if not rest:
            self._map[name] = value
            return
        nested = self._map.get(name)
        target = nested.copy() if _is_tree(nested) else type(self)()
        target.insert(".".join(rest), value, overwrite)
        self._map[name] = target

    def update(self, values: DotTree[L], overwrite: bool = False) -> None:
        """Insert every entry of another tree; nested trees are copied."""
        for key, value in values._map.items():
            self.insert(key, value.copy() if _is_tree(value) else value, overwrite)

    def pop(self, key: str) -> Any:
        """Remove and return the entry at a (dotted) key."""
        first, rest = self._resolve(key)
        return self._nested(first).pop(rest) if rest else self._map.pop(first)

    def copy(self: CLS) -> CLS:
        """A tree with nested trees copied and leaves shared."""
        other = type(self)()
        other._map.update({k: v.copy() if isinstance(v, DotTree) else v for k, v in self._map.items()})
        return other

    def filter_keys(self: CLS, keys: Iterable[str | int]) -> CLS:
        """A tree of the named entries only.

        Raises
        ------
        ValueError
            A key is given twice.
        """
        wanted = [str(k) for k in keys]
        if len(set(wanted)) != len(wanted):
            raise ValueError("`keys` cannot contain duplicate values.")
        return type(self).from_dict({key: self.get(key) for key in wanted})

    def keys(self) -> list[str]:
        """Keys of this level."""
        return list(self._map)

    def values(self) -> list[Any]:
        """Entries of this level."""
        return list(self._map.values())

    def _flat(self, prefix: str = "") -> Iterator[tuple[str, L]]:
        for key, value in self._map.items():
            if isinstance(value, DotTree):
                yield from value._flat(f"{prefix}{key}.")
            else:
                yield f"{prefix}{key}", value

    def keys_flat(self) -> list[str]:
        """Dotted names of all leaves."""
        return [name for name, _ in self._flat()]

    def values_flat(self) -> list[L]:
        """All leaves."""
        return [leaf for _, leaf in self._flat()]

    def len(self) -> int:
        """Number of entries of this level."""
        return len(self._map)

    def len_flat(self) -> int:
        """Number of leaves."""
        return sum(1 for _ in self._flat())

    def to_mapping(self, values: DotTree[V]) -> dict[L, V]:
        """Leaves of this tree to the leaves of `values` with the same names."""
        return to_mapping(self, values)

    def to_dict(self) -> dict[str, L]:
        """Leaves by dotted name, depth first in insertion order."""
        return DictText(self._flat())

    @classmethod
    def from_dict(cls: type[CLS], d: Mapping[Any, Any]) -> CLS:
        """The tree whose entries stand at the (dotted or numeric) keys of a mapping; values that are trees are kept."""
        tree = cls()
        made = {id(tree)}
        for key, value in d.items():
            *path, last = _parts(key)
            level: DotTree[Any] = tree
            for part in path:
                level = level._below(_checked(part), made)
            level.insert(last, value)
        return tree

    def _below(self, name: str, made: set[int]) -> DotTree[Any]:
        """The tree at a key, to write into: a copy unless it is one of `made`; ValueError where a leaf is."""
        found = self._map.get(name, type(self)())
        if not _is_tree(found):
            raise ValueError(f"'{name}' already exists")
        if id(found) not in made:
            found = self._map[name] = found.copy()
            made.add(id(found))
        return found

    def unpack(self) -> tuple[tuple[str, ...], tuple[L, ...]]:
        """Names and leaves, sorted by name."""
        pairs = sorted(self._flat(), key=lambda pair: pair[0])
        return cast(Any, tuple(zip(*pairs, strict=True)) if pairs else ([], []))

    @classmethod
    def pack(cls: type[CLS], keys: Iterable[str | int], values: Iterable[Any]) -> CLS:
        """The inverse of `unpack`."""
        return cls.from_dict(dict(zip(keys, values, strict=False)))

    def map(self: CLS, fn: Callable[[Any], Any]) -> CLS:
        """A tree of the same shape with `fn` applied to each leaf."""
        other = type(self)()
        other._map.update((k, v.map(fn) if _is_tree(v) else fn(v)) for k, v in self._map.items())
        return other

    def _clear(self) -> None:
        """Remove all leaves; nested trees stay linked."""
        for key, value in list(self._map.items()):
            if _is_tree(value):
                value._clear()
            else:
                del self._map[key]

    def __contains__(self, key: object) -> bool:
        try:
            self.get(cast(str, key))
        except KeyError:
            return False
        return True

    def __repr__(self) -> str:
        return repr(self.to_dict())
