"""Repeated substrings of a sequence of numbers, by a suffix array and its longest common prefixes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

Repeat = tuple[int, list[int]]  # length, and starts of the occurrences


def best_repeats(
    letters: Sequence[int], worth: Callable[[int, int], float], occurrences: Callable[[int, list[int]], list[int]]
) -> Iterator[Repeat]:
    """Repeats that share no letter, most valuable first; the value is that of all occurrences but one.

    No repeat contains a letter that occurs once only. ``worth(start, stop)`` is the value of a substring;
    ``occurrences(length, starts)`` are those starts whose substrings are equivalent, in rising order.
    """
    order = suffixes(np.asarray(letters, np.int64))
    found = all_repeats(letters, order)
    taken = np.zeros(len(letters) + 1, np.int64)  # prefix sums of the letters that belong to a chosen repeat

    checked: dict[int, list[int]] = {}  # equivalent occurrences, by repeat
    heap = [(-r.beside * worth(r.first, r.first + r.length), i) for i, r in enumerate(found)]
    heapq.heapify(heap)
    while heap and heap[0][0] < 0:
        hoped, i = heapq.heappop(heap)
        n, each = found[i].length, worth(found[i].first, found[i].first + found[i].length)
        starts = np.asarray(checked.get(i) or np.sort(order[found[i].left : found[i].right + 1]))
        apart = _apart(n, starts[taken[starts + n] == taken[starts]].tolist())
        if -(len(apart) - 1) * each == hoped and i not in checked:
            apart = checked[i] = _apart(n, occurrences(n, apart))
        value = -(len(apart) - 1) * each
        if value != hoped:  # worth less than its upper bound: back into the queue
            if len(apart) > 1:
                heapq.heappush(heap, (value, i))
            continue
        new = np.zeros(len(letters), np.int64)
        for s in apart:
            new[s : s + n] = 1
        taken[1:] += np.cumsum(new)
        yield n, apart


def _apart(n: int, starts: list[int]) -> list[int]:
    """Starts of occurrences that do not overlap: the first, then each behind the end of the one before."""
    chosen: list[int] = []
    for s in starts:
        if not chosen or s >= chosen[-1] + n:
            chosen.append(s)
    return chosen


class _Repeat(NamedTuple):
    """A substring that can't be extended without losing an occurrence; `order[left : right + 1]` are its starts."""

    length: int
    left: int
    right: int
    first: int
    last: int

    @property
    def beside(self) -> int:
        """Upper bound of the occurrences without overlap, besides the first."""
        return min(self.right - self.left, (self.last - self.first) // self.length)


def all_repeats(letters: Sequence[int], order: np.ndarray) -> list[_Repeat]:
    """All repeats, from the longest common prefixes of neighbours in the suffix array."""
    found: list[_Repeat] = []
    stack: list[tuple[int, int, int, int]] = []  # length, first suffix with it, lowest and highest start
    for i, length in enumerate([*_common_prefixes(letters, order), 0]):
        left, first, last = i, int(order[i]), int(order[i])
        while stack and stack[-1][0] > length:
            n, left, low, high = stack.pop()
            first, last = min(first, low), max(last, high)
            found.append(_Repeat(n, left, i, first, last))
        if not length:
            continue
        if stack and stack[-1][0] == length:
            n, left, low, high = stack.pop()
            first, last = min(first, low), max(last, high)
        stack.append((length, left, first, last))
    return found


def suffixes(letters: np.ndarray) -> np.ndarray:
    """The suffix array (starts of all suffixes in lexicographic order), by prefix doubling."""
    rank = np.unique(letters, return_inverse=True)[1].astype(np.int64)
    step = 1
    while True:
        behind = np.full(len(rank), -1, np.int64)
        behind[:-step] = rank[step:]
        order = np.lexsort((behind, rank))
        changes = (rank[order][1:] != rank[order][:-1]) | (behind[order][1:] != behind[order][:-1])
        rank = np.empty_like(rank)
        rank[order] = np.concatenate([[0], np.cumsum(changes)])
        if step >= len(rank) or rank[order[-1]] == len(rank) - 1:
            return order
        step *= 2


def _common_prefixes(letters: Sequence[int], order: np.ndarray) -> list[int]:
    """Lengths of the longest common prefixes of neighbours in the suffix array, by Kasai's algorithm."""
    total = len(letters)
    place = np.empty_like(order)
    place[order] = np.arange(total)
    result, length = [0] * max(total - 1, 0), 0
    for start in range(total):
        rank = int(place[start])
        if rank == 0:
            length = 0
            continue
        other = int(order[rank - 1])
        stop = total - max(start, other)
        while length < stop and letters[start + length] == letters[other + length]:
            length += 1
        result[rank - 1] = length
        length = max(length - 1, 0)
    return result
