"""Plans for many chips against values computed by hand."""

from __future__ import annotations

import dataclasses
import itertools
import re

import pytest

import ipu_model
from ipu_model.scaling import Block, Interconnect, Level, Spread, Work, best_plans, interconnect_of, single
from ipu_model.scaling.page import render
from ipu_model.scaling.plan import Batches, priced
from ipu_model.scaling.search import in_stages, spreads

NEAR, FAR = Level("near", 4, 8e9, 1e-6), Level("far", 64, 1e9, 5e-6)
LINKS = Interconnect((NEAR, FAR))


@pytest.mark.parametrize(
    ("members", "stride", "seconds"),
    [
        (1, 1, 0.0),
        (2, 1, 2 * 1 / 2 * 4e9 / 8e9 + 2 * 1e-6),
        (4, 1, 2 * 3 / 4 * 4e9 / 8e9 + 6 * 1e-6),
        (2, 2, 2 * 1 / 2 * 4e9 / 8e9 + 2 * 1e-6),
        (2, 4, 2 * 1 / 2 * 4e9 / 1e9 + 2 * 5e-6),
        (16, 4, 2 * 15 / 16 * 4e9 / 1e9 + 30 * 5e-6),
        (16, 1, 2 * 3 / 4 * 4e9 / 8e9 + 6e-6 + 2 * 3 / 4 * 1e9 / 1e9 + 6 * 5e-6),
        (8, 2, 2 * 1 / 2 * 4e9 / 8e9 + 2e-6 + 2 * 3 / 4 * 2e9 / 1e9 + 6 * 5e-6),
        (6, 1, 2 * 2 / 3 * 4e9 / 8e9 + 4e-6 + 2 * 1 / 2 * (4e9 / 3) / 1e9 + 2 * 5e-6),
    ],
)
def test_rings(members, stride, seconds):
    assert LINKS.all_reduce(4e9, members, stride) == pytest.approx(seconds, rel=1e-12)


def test_neighbours_and_what_no_link_joins():
    assert LINKS.send(8e9, 1) == pytest.approx(1 + 1e-6)
    assert LINKS.send(8e9, 4) == pytest.approx(8 + 5e-6)
    with pytest.raises(ValueError, match="the links join 64"):
        LINKS.all_reduce(1.0, 128)
    with pytest.raises(ValueError, match="128 chips"):
        LINKS.send(1.0, 64)


def test_links_of_the_targets():
    bow = ipu_model.get_target("bow")
    machine, rack, racks = interconnect_of(bow).levels
    assert (machine.chips, rack.chips, racks.chips) == (4, 64, 1024)
    assert machine.bytes_per_second == pytest.approx(10 * 16 * 2**30 * 0.85)
    assert rack.bytes_per_second == pytest.approx(512e9 / 8 / 4)
    assert racks.bytes_per_second == pytest.approx(200e9 / 8 / 4)
    assert machine.latency == pytest.approx(bow.external_sync_cycles / 1.85e9)
    assert interconnect_of(ipu_model.get_target("mk1")).levels[0].chips == 16
    assert interconnect_of(object()).levels[0].bytes_per_second == pytest.approx(12.5e9)


BLOCK = Block("b", forward=1.0, backward=2.0, update=0.5, weights=4e9, activations=3.0, handed_on=1e9, divides=True,
              divides_weights=True, summed=8e9)  # fmt: skip
PLAIN = dataclasses.replace(BLOCK, divides=False, divides_weights=False, summed=0.0)


def plan(work, spread, accumulation, recompute=False, links=LINKS, in_flight=0):
    stages, batches = in_stages(work.blocks, spread.pipeline, spread.tensor), Batches(accumulation, in_flight)
    return priced(work, stages, spread, links, batches, recompute)


def test_a_hop_between_gpus_takes_time_too():
    near = interconnect_of(ipu_model.get_target("a100")).all_reduce(1.0, 8)
    assert 5e-6 < near < 50e-6  # what small messages take, whatever their size
    assert interconnect_of(ipu_model.get_target("a100")).all_reduce(1.0, 64) > 2 * near


def test_data_parallel():
    """Every chip does all of it, and gradients are added up."""
    found = plan(Work((PLAIN, PLAIN), samples=8), Spread(16, 1, 1), 4)
    assert found.parts.compute == pytest.approx(4 * 2 * 3)
    assert found.parts.gradients == pytest.approx(LINKS.all_reduce(8e9, 16))
    assert found.parts.update == pytest.approx(1.0)
    assert found.parts.tensor == found.parts.stages == found.parts.waiting == 0
    assert found.memory == pytest.approx(4 * 8e9 + 6)  # weights, gradients, two moments; activations
    assert found.throughput == pytest.approx(8 * 16 * 4 / (25 + LINKS.all_reduce(8e9, 16)))


def test_tensor_parallel():
    """Time and weights divide, one sum forward and one backward."""
    found = plan(Work((BLOCK, PLAIN), samples=8), Spread(2, 4, 1), 3)
    assert found.parts.compute == pytest.approx(3 * (3 / 4 + 3))
    assert found.parts.tensor == pytest.approx(3 * 2 * LINKS.all_reduce(8e9, 4))
    assert found.parts.gradients == pytest.approx(LINKS.all_reduce(4e9 / 4 + 4e9, 2, 4))
    assert found.parts.update == pytest.approx(0.5 / 4 + 0.5)
    assert found.memory == pytest.approx(4 * 5e9 + 6)  # sums are whole on every chip


def test_pipeline():
    """With p stages the slowest one's time passes a + p - 1 times; the first stage holds p micro-batches."""
    long = dataclasses.replace(PLAIN, forward=3.0, backward=4.0)
    found = plan(Work((PLAIN, long, PLAIN), samples=8), Spread(1, 1, 3), 5)
    sends = 2 * LINKS.send(1e9, 1)
    assert found.parts.compute == pytest.approx(5 * 7)
    assert found.parts.stages == pytest.approx(5 * sends)
    assert found.parts.waiting == pytest.approx(2 * (7 + sends))
    assert found.memory == pytest.approx(4 * 4e9 + 3 * 3)
    assert found.parts.total == pytest.approx((5 + 3 - 1) * (7 + sends) + 0.5)
    short = plan(Work((PLAIN, long, PLAIN), samples=8), Spread(1, 1, 3), 2)
    assert short.memory == pytest.approx(4 * 4e9 + 2 * 3)


def simulated(count, stages, in_flight):
    """Turns until all micro-batches are through: one enters as soon as the first stage is free and few are inside."""
    ends = []
    for at in range(count):
        free = ends[at - 1] - stages + 1 if at else 0
        ends.append(max(free, ends[at - in_flight] if at >= in_flight else 0) + stages)
    return ends[-1]


@pytest.mark.parametrize(("count", "stages"), [(1, 1), (1, 4), (5, 3), (8, 4), (7, 5), (16, 2)])
def test_fewer_micro_batches_in_flight_take_longer_and_less_memory(count, stages):
    work = Work((dataclasses.replace(PLAIN, handed_on=0.0, update=0.0, weights=1.0),) * stages, samples=8)
    for in_flight in range(1, stages + 1):
        found = plan(work, Spread(1, 1, stages), count, in_flight=in_flight)
        turn = 3.0 + 2 * (NEAR.latency if stages > 1 else 0.0)
        assert found.parts.total == pytest.approx(simulated(count, stages, in_flight) * turn, rel=1e-5)
        assert found.in_flight == min(count, in_flight)
        assert found.memory == pytest.approx(4.0 + found.in_flight * 3.0)


def test_a_pipeline_that_does_not_fit_takes_fewer_at_once_or_recomputes_whichever_is_faster():
    cheap = dataclasses.replace(PLAIN, weights=1.0, activations=1e9, handed_on=9e8)
    dear = dataclasses.replace(cheap, forward=100.0)
    # 4 stages, 4 in flight: room for three sets of activations, and not for the inputs of a stage beside one
    for block in (cheap, dear):
        fitting, _ = best_plans(lambda _, block=block: Work((block,) * 4, samples=1), 4, LINKS, 3.3e9, 64)
        found = next(p for p in fitting if p.spread.pipeline == 4)
        work = Work((block,) * 4, samples=1)
        every = [plan(work, found.spread, 64, again, in_flight=n) for again in (False, True) for n in (1, 2, 3, 4)]
        best = max(p.throughput for p in every if p.memory <= 3.3e9)
        assert found.throughput == best
        assert (found.in_flight, found.recompute) == (3, False)
    fitting, _ = best_plans(
        lambda _: Work((dataclasses.replace(cheap, handed_on=1e8),) * 4, samples=1), 4, LINKS, 1.4e9, 64
    )
    found = next(p for p in fitting if p.spread.pipeline == 4)
    assert (found.in_flight, found.recompute) == (4, True)


def test_the_size_of_a_micro_batch_is_chosen_for_a_step_of_equal_samples():
    def of(samples):  # a step that fits on a chip less well the more samples it holds, and is quicker for each
        block = dataclasses.replace(
            BLOCK, forward=1.0 + samples / 8, backward=2.0, weights=1e9, activations=samples * 1e8, summed=1e6
        )
        return lambda _: Work((block,) * 2, samples=samples)

    programs = [of(8), of(2), of(32)]
    for memory in (8e9 + 5e8, 8e9 + 2e9, 8e9 + 9e9):
        fitting, _ = best_plans(programs, 2, LINKS, memory, 4)
        alone = [
            p
            for each, count in zip(programs, (4, 16, 1), strict=True)
            for p in best_plans(each, 2, LINKS, memory, count)[0]
        ]
        assert fitting[0].throughput == max(p.throughput for p in alone)
        assert all(p.micro_batch * p.accumulation == 32 for p in fitting)
        assert all(p.efficiency <= 1 for p in fitting)
    assert [best_plans(programs, 1, LINKS, 8e9 + m, 4)[0][0].micro_batch for m in (5e8, 2e9, 9e9)] == [2, 8, 32]
    with pytest.raises(ValueError, match="32 samples on each replica is no whole number of micro-batches of 5"):
        best_plans([of(8), of(5)], 2, LINKS, 1e12, 4)


def test_recomputation():
    """One more forward pass; only what enters a stage waits."""
    heavy = dataclasses.replace(PLAIN, activations=5e9, handed_on=1e8)
    work = Work((heavy,) * 4, samples=1)
    kept, again = (plan(work, Spread(1, 1, 4), 8, recompute) for recompute in (False, True))
    assert kept.memory == pytest.approx(16e9 + 4 * 5e9)
    assert again.memory == pytest.approx(16e9 + 5e9 + 3 * 1e8)  # the second stage: the first has nothing that enters
    assert again.parts.compute == pytest.approx(8 * 4)
    assert kept.parts.compute == pytest.approx(8 * 3)


def test_inference_holds_weights_and_results():
    found = plan(Work((PLAIN, PLAIN), samples=8, training=False), Spread(4, 1, 1), 1)
    assert found.parts.total == pytest.approx(2.0)
    assert found.parts.gradients == found.parts.update == 0
    assert found.memory == pytest.approx(8e9 + 6)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_stages_are_as_even_as_can_be(count):
    times = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0]
    blocks = [Block(str(i), t) for i, t in enumerate(times)]
    stages = in_stages(blocks, count)
    assert [b for stage in stages for b in stage] == blocks
    assert len(stages) == count
    assert all(stages)
    cuts = itertools.combinations(range(1, len(times)), count - 1)
    best = min(max(sum(times[a:b]) for a, b in itertools.pairwise((0, *cut, len(times)))) for cut in cuts)
    assert max(sum(b.forward for b in stage) for stage in stages) == pytest.approx(best)


def test_equal_blocks_make_as_many_stages_as_asked():
    blocks = [Block(str(i), 1.0) for i in range(6)]
    assert [len(in_stages(blocks, n)) for n in range(1, 7)] == [1, 2, 3, 4, 5, 6]
    assert [len(in_stages([Block("z", 0.0)] * 3, n)) for n in (1, 2, 3)] == [1, 2, 3]


def test_all_ways_are_looked_at():
    found = list(spreads(8, 4))
    assert all(s.chips == 8 and s.pipeline <= 4 for s in found)
    assert len(found) == len(set(found)) == 9  # 10 ordered factorings of 8 in three, without 1 x 1 x 8


def test_best_first_and_what_does_not_fit():
    work = Work((BLOCK,) * 4, samples=8)
    fitting, others = best_plans(lambda _: work, 8, LINKS, 20e9, 4)
    assert [p.throughput for p in fitting] == sorted((p.throughput for p in fitting), reverse=True)
    assert all(p.memory <= 20e9 for p in fitting)
    assert all(p.memory > 20e9 for p in others)
    assert {p.spread for p in (*fitting, *others)} == set(spreads(8, 4))
    one = single(work, 4)
    assert one == pytest.approx(8 * 4 / (4 * 12 + 2))
    assert fitting[0].efficiency == pytest.approx(fitting[0].throughput / (8 * one))
    whole = Work((PLAIN,) * 4, samples=8)
    spread = {p.spread.tensor for plans in best_plans(lambda _: whole, 8, LINKS, 1e12, 4) for p in plans}
    assert spread == {1}  # nothing divides


def test_the_page_has_every_figure():
    work = Work((BLOCK,) * 4, samples=8)
    found = {n: best_plans(lambda _: work, n, LINKS, 1e12, 4)[0] for n in (4, 8)}
    page = render("a <model>", found, 2)
    assert "a &lt;model&gt;" in page
    for n, plans in found.items():
        assert f'data-chips="{n}" data-throughput="{plans[0].throughput:.6g}"' in page
        assert f'data-part="compute" data-seconds="{plans[0].parts.compute:.6g}"' in page
        assert f"<td>{plans[1].throughput:,.1f}</td>" in page
        assert (
            f"<td>8 x 4</td><td>{plans[1].in_flight}</td>" in page
        )  # samples, micro-batches, of which so many at once
    table = page[page.index("<table>") :]
    assert {row.count("<td>") or row.count("<th>") for row in table.split("</tr>")[:-1]} == {table.count("<th>")}
    assert "No plan fits" in render("x", {4: []}, 2)


def test_figures_of_the_page_have_decimal_prefixes_and_labels_of_the_axis_do_not_touch():
    plan = best_plans(lambda _: Work((BLOCK,) * 4, samples=8), 4, LINKS, 1e12, 4)[0][0]
    found = {n: [dataclasses.replace(plan, throughput=880_836.2 + n)] for n in (4, 8, 16)}
    page = render("m", found, 2)
    heights = [float(y) for y in re.findall(r'<text x="82" y="([0-9.]+)" text-anchor="end">881 k<', page)]
    assert heights
    assert all(abs(a - b) >= 14 for a, b in itertools.combinations(heights, 2))
    assert "e+" not in page
