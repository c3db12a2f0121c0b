"""The operations of a program: its nodes; in a plain function the lines of code in each scope, by who calls them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from ipu_model.compat import call_lines
from ipu_model.cost import ZERO
from ipu_model.costs.rule import nonzero
from ipu_model.pricing import Priced
from ipu_model.report.model import OperationRow, plain
from ipu_model.walk.program import Step

Named = tuple[str, str]  # node or scope, and the line in it
Lines = tuple[str, ...]  # of code, innermost first


def operations(priced: Priced) -> tuple[OperationRow, ...]:
    """A row for each node and phase, in the order of the program."""
    groups: dict[tuple[Named, str], list[int]] = defaultdict(list)
    for at, name in enumerate(_names(priced.program.steps)):
        groups[name, priced.program.steps[at].scope.phase].append(at)
    return tuple(_row(priced, name, phase, members) for (name, phase), members in groups.items())


def _names(steps: Sequence[Step]) -> list[Named]:
    names = [(step.label, "") for step in steps]
    if any(step.scope.node for step in steps):
        return names
    members: dict[str, list[int]] = defaultdict(list)
    for at, step in enumerate(steps):
        if step.equations:
            members[step.label].append(at)
    for label, alike in members.items():
        for at, lines in _told_apart({at: call_lines(*steps[at].equations) for at in alike}):
            *callers, line = lines or ("",)
            outside = [label, *callers] if steps[at].scope.path else callers
            names[at] = ("/".join(outside), line) if outside and line else (label, "")
    return names


def _told_apart(calls: Mapping[int, Lines]) -> Iterator[tuple[int, Lines]]:
    """Each step with its line behind the lines that call it, from the outermost in which those of one line differ."""
    waiting = [(list(calls), 0, 1)]  # steps whose first lines are equal, how many those are, and how many are shown
    while waiting:
        alike, equal, shown = waiting.pop()
        if len({calls[at] for at in alike}) == 1:
            yield from ((at, calls[at][:shown][::-1]) for at in alike)
            continue
        apart: dict[Lines, list[int]] = defaultdict(list)
        for at in alike:
            apart[calls[at][: equal + 1]].append(at)
        shown = equal + 1 if len(apart) > 1 else shown
        waiting += [(inside, equal + 1, shown) for inside in apart.values()]


def _row(priced: Priced, name: Named, phase: str, members: Sequence[int]) -> OperationRow:
    total, steps = ZERO, priced.program.steps
    for at in members:
        total = total + priced.costs[at] * priced.trips[at]
    names = dict.fromkeys(steps[at].op.primitive for at in members if nonzero(priced.costs[at].total))
    written = sum(t.nbytes for at in members if not priced.prices[at].view for t in steps[at].op.outputs)
    temporary = max(int(priced.prices[at].temporary) for at in members)
    node, line = name
    operator = priced.placement.of(steps[members[0]].label).operator
    ipu = priced.ipus[members[0]]
    return OperationRow(node, phase, tuple(names), len(members), ipu, plain(total), temporary, written, operator, line)
