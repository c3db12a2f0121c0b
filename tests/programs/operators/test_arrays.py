"""Shape, index and elementwise operators against PyTorch, values and gradients."""

from __future__ import annotations

import numpy as np
import pytest

from .against_torch import case, compare, f

torch = pytest.importorskip("torch")
F = torch.nn.functional


def K(n, v):
    """An INT64 constant."""
    return n.constant(np.array(v, np.int64))


CASES = [
    case("concat", lambda b, n, g, i: n.concat(i, -1), lambda a, b: torch.cat([a, b], -1), f(2, 3), f(2, 2), opset=11),
    case("split", lambda b, n, g, i: n.split(i, 3, 1)[1], lambda a: a.split(2, 1)[1], f(2, 6)),
    case("split2", lambda b, n, g, i: n.split(i, 2, -1, [4, 2])[0], lambda a: a.split([4, 2], 1)[0], f(2, 6)),
    case("squeeze", lambda b, n, g, i: n.squeeze(i), lambda a: a.squeeze(), f(1, 2, 1)),
    case("squeeze2", lambda b, n, g, i: n.squeeze(i, [0]), lambda a: a.squeeze(0), f(1, 2, 1), opset=11),
    case("unsq", lambda b, n, g, i: n.unsqueeze(i, [0, -1]), lambda a: a[None, ..., None], f(2, 3), opset=11),
    case("flatten", lambda b, n, g, i: n.flatten(i, -1), lambda a: a.reshape(6, 4), f(2, 3, 4), opset=11),
    case("flatten0", lambda b, n, g, i: n.flatten(i, 0), lambda a: a.reshape(1, 24), f(2, 3, 4)),
    case("flattend", lambda b, n, g, i: n.flatten(i), lambda a: a.reshape(2, 12), f(2, 3, 4)),
    case("transpose", lambda b, n, g, i: n.transpose(i), lambda a: a.permute(2, 1, 0), f(2, 3, 4)),
    case("transpose[]", lambda b, n, g, i: n.transpose(i, []), lambda a: a.permute(2, 1, 0), f(2, 3, 4)),
    case("transposep", lambda b, n, g, i: n.transpose(i, perm=[1, 2, 0]), lambda a: a.permute(1, 2, 0), f(2, 3, 4)),
    case("reshape", lambda b, n, g, i: n.reshape([*i, K(n, [0, -1])]), lambda a: a.reshape(2, 12), f(2, 3, 4)),
    case("reshape_const", lambda b, n, g, i: b.reshape_const(n, i, [4, 6]), lambda a: a.reshape(4, 6), f(2, 3, 4)),
    case(
        "reshape32",
        lambda b, n, g, i: n.reshape([*i, n.constant(np.array([4, 6], np.int32))]),
        lambda a: a.reshape(4, 6),
        f(2, 3, 4),
    ),
    case("gcreshape", lambda b, n, g, i: g.reshape(i[0], [0, -1]), lambda a: a.reshape(2, 12), f(2, 3, 4)),
    case("expand", lambda b, n, g, i: n.expand([*i, K(n, [3, 2, 3])]), lambda a: a.expand(3, 2, 3), f(2, 1)),
    case("tile", lambda b, n, g, i: n.tile([*i, K(n, [2, 3])]), lambda a: a.repeat(2, 3), f(2, 3)),
    case(
        "pad",
        lambda b, n, g, i: n.pad(i, pads=[1, 0, 2, 3], mode="constant", value=1.5),
        lambda a: F.pad(a, (0, 3, 1, 2), value=1.5),
        f(2, 3),
    ),
    case("padneg", lambda b, n, g, i: n.pad(i, [-1, 1, 0, -1]), lambda a: F.pad(a, (1, -1, -1, 0)), f(3, 3)),
    case(
        "pad11",
        lambda b, n, g, i: n.pad([*i, K(n, [1, 0, 2, 3]), n.constant(np.array(2.0, np.float32))]),
        lambda a: F.pad(a, (0, 3, 1, 2), value=2.0),
        f(2, 3),
        opset=11,
    ),
    case(
        "padreflect",
        lambda b, n, g, i: n.pad(i, [2, 2], "reflect"),
        lambda a: F.pad(a[None, None], (2, 2), mode="reflect")[0, 0],
        f(4),
        gradient=False,
    ),
    case(
        "padedge",
        lambda b, n, g, i: n.pad(i, [2, 2], "edge"),
        lambda a: F.pad(a[None, None], (2, 2), mode="replicate")[0, 0],
        f(4),
        gradient=False,
    ),
    case(
        "slice1",
        lambda b, n, g, i: n.slice(i, axes=[0, 1], starts=[1, -2], ends=[3, 1000]),
        lambda a: a[1:3, -2:],
        f(4, 5),
        opset=9,
    ),
    case("slice1p", lambda b, n, g, i: n.slice(i, [3, 1000], [1, -2], [0, 1]), lambda a: a[1:3, -2:], f(4, 5), opset=9),
    case("gcslice", lambda b, n, g, i: g.slice(i, [3, 1000], [1, -2], [0, 1]), lambda a: a[1:3, -2:], f(4, 5)),
    case(
        "slice10",
        lambda b, n, g, i: n.slice([*i, K(n, [-1]), K(n, [-10]), K(n, [1]), K(n, [-1])]),
        lambda a: a.flip(1),
        f(4, 5),
    ),
    case(
        "slice10s",
        lambda b, n, g, i: n.slice([*i, K(n, [0]), K(n, [10]), K(n, [1]), K(n, [2])]),
        lambda a: a[:, ::2],
        f(4, 5),
    ),
    case("slice10b", lambda b, n, g, i: n.slice([*i, K(n, [1]), K(n, [3])]), lambda a: a[1:3], f(4, 5), opset=11),
    case(
        "slice10c",
        lambda b, n, g, i: n.slice([*i, K(n, [0]), K(n, [10]), "", K(n, [1])]),
        lambda a: a[0:10],
        f(4, 5),
        opset=11,
    ),
    case(
        "dts",
        lambda b, n, g, i: n.depthtospace(i, 2),
        lambda a: a.reshape(1, 2, 2, 2, 2, 3).permute(0, 3, 4, 1, 5, 2).reshape(1, 2, 4, 6),
        f(1, 8, 2, 3),
    ),
    case(
        "dtscrd",
        lambda b, n, g, i: n.depthtospace(i, 2, "CRD"),
        lambda a: F.pixel_shuffle(a, 2),
        f(1, 8, 2, 3),
        opset=11,
    ),
    case(
        "std",
        lambda b, n, g, i: n.spacetodepth(i, 2),
        lambda a: a.reshape(1, 2, 2, 2, 3, 2).permute(0, 3, 5, 1, 2, 4).reshape(1, 8, 2, 3),
        f(1, 2, 4, 6),
    ),
    case("reverse", lambda b, n, g, i: g.reverse(i, [0]), lambda a: a.flip(0), f(2, 3)),
    case("subsample", lambda b, n, g, i: g.subsample(i, [2, 1]), lambda a: a[::2], f(5, 3)),
    case(
        "where",
        lambda b, n, g, i: n.where([n.greater([i[0], n.constant(np.array(0, np.float32))]), i[0], i[1]]),
        lambda a, b: torch.where(a > 0, a, b),
        f(2, 3),
        f(3),
    ),
    case(
        "gather",
        lambda b, n, g, i: n.gather(i, 1),
        lambda a, j: a[:, j.long()],
        f(2, 4),
        np.array([[0, 3], [3, 1]], np.int32),
    ),
    case(
        "gathern",
        lambda b, n, g, i: n.gather(i, -1),
        lambda a, j: a[:, j.long()],
        f(2, 4),
        np.array([[0, 3], [3, 1]], np.int32),
        opset=11,
    ),
    case(
        "gather64",
        lambda b, n, g, i: n.gather(i),
        lambda a, j: a[j.long()],
        f(2, 4),
        np.array([1, 0], np.int64),
        opset=11,
    ),
    case(
        "groupedgather",
        lambda b, n, g, i: g.groupedgather(i, 1, 2),
        lambda a, j: torch.stack([a[k][j[k].long()] for k in range(2)]),
        f(2, 4, 3),
        np.array([[0, 3], [3, 1]], np.int32),
    ),
    case(
        "scatter",
        lambda b, n, g, i: n.scatter(i, 1),
        lambda a, j, u: a.scatter(1, j.long(), u),
        f(2, 4),
        np.array([[0, 3], [2, 1]], np.int32),
        f(2, 2),
    ),
    case(
        "scatterel",
        lambda b, n, g, i: n.scatterelements(i, -1),
        lambda a, j, u: a.scatter(1, j.long(), u),
        f(2, 4),
        np.array([[0, 3], [2, 1]], np.int32),
        f(2, 2),
        opset=11,
    ),
    case(
        "onehot",
        lambda b, n, g, i: n.onehot([i[0], n.constant(np.array(4, np.int32)), i[1]]),
        lambda j, v: F.one_hot(j.long(), 4) * v[1] + (1 - F.one_hot(j.long(), 4)) * v[0],
        np.array([[0, 3], [2, 1]], np.int32),
        f(2),
    ),
    case(
        "onehot0",
        lambda b, n, g, i: n.onehot([i[0], n.constant(np.array([4], np.int64)), i[1]], 0),
        lambda j, v: (F.one_hot(j.long(), 4) * v[1] + (1 - F.one_hot(j.long(), 4)) * v[0]).permute(2, 0, 1),
        np.array([[0, 3], [2, 1]], np.int32),
        f(2),
    ),
    case("topk", lambda b, n, g, i: n.topk([*i, K(n, 2)], axis=1)[0], lambda a: a.topk(2, 1)[0], f(3, 5)),
    case("topk6", lambda b, n, g, i: n.topk(i, 2, 0)[0], lambda a: a.topk(2, 0)[0], f(3, 5), opset=9),
    case(
        "topk11",
        lambda b, n, g, i: n.topk([*i, K(n, [2])], 1, 0, 1)[0],
        lambda a: a.topk(2, 1, largest=False)[0],
        f(3, 5),
        opset=11,
    ),
    case("sort", lambda b, n, g, i: g.sort(i, 1, 1)[0], lambda a: a.sort(1, True)[0], f(3, 5)),
    case("sortd", lambda b, n, g, i: g.sort(i)[0], lambda a: a.sort(-1)[0], f(3, 5)),
    case("median", lambda b, n, g, i: g.reducemedian(i, [1], 0)[0], lambda a: a.median(1)[0], f(3, 4)),
    case(
        "cumsum",
        lambda b, n, g, i: n.cumsum([*i, n.constant(np.array(1, np.int32))], 0, 1),
        lambda a: a.flip(1).cumsum(1).flip(1),
        f(3, 4),
        opset=11,
    ),
    case(
        "cumsume",
        lambda b, n, g, i: n.cumsum([*i, n.constant(np.array(-1, np.int32))], exclusive=1),
        lambda a: a.cumsum(1) - a,
        f(3, 4),
        opset=11,
    ),
    case("clip6", lambda b, n, g, i: n.clip(i, 0.5, -0.5), lambda a: a.clip(-0.5, 0.5), f(3, 4)),
    case(
        "clip11",
        lambda b, n, g, i: n.clip(
            [*i, n.constant(np.array(-0.5, np.float32)), n.constant(np.array([0.5], np.float32))]
        ),
        lambda a: a.clip(-0.5, 0.5),
        f(3, 4),
        opset=11,
    ),
    case(
        "clip11b",
        lambda b, n, g, i: n.clip([*i, "", n.constant(np.array([0.5], np.float32))]),
        lambda a: a.clip(max=0.5),
        f(3, 4),
        opset=11,
    ),
    case("cast", lambda b, n, g, i: n.cast(i, "FLOAT16"), lambda a: a, f(3, 4), tol=0.002),
    case("scale", lambda b, n, g, i: g.scale(i, 0.5), lambda a: a * 0.5, f(3, 4)),
    case("fmod", lambda b, n, g, i: g.fmod(i), torch.fmod, f(3, 4) * 3, abs(f(4)) + 0.5, gradient=False),
    case("remainder", lambda b, n, g, i: g.remainder(i), torch.remainder, f(3, 4) * 3, f(4) + 3, gradient=False),
    case("mod0", lambda b, n, g, i: n.mod(i), torch.remainder, f(3, 4) * 3, f(4) + 3, gradient=False),
    case("mod1", lambda b, n, g, i: n.mod(i, 1), torch.fmod, f(3, 4) * 3, f(4) + 3, gradient=False),
    case(
        "dynslice",
        lambda b, n, g, i: g.dynamicslice(i, [0], [2]),
        lambda a, o: a[1:3],
        f(4, 3),
        np.array([1], np.uint32),
    ),
    case(
        "dynupd",
        lambda b, n, g, i: g.dynamicupdate(i, axes=[0], sizes=[1]),
        lambda a, o, s: torch.cat([a[:1], s, a[2:]]),
        f(4, 3),
        np.array([1], np.uint32),
        f(1, 3),
    ),
    case(
        "dynupd3",
        lambda b, n, g, i: g.dynamicupdate(i, [0], [1], noOverlap=True),
        # the gradient of the data passes unchanged: slices that do not overlap are each written once
        lambda a, o, s: a + torch.cat([0 * a[:1].detach(), (s - a[1].detach())[None], 0 * a[2:].detach()]),
        f(4, 3),
        np.array([1], np.uint32),
        f(3),
    ),
    case(
        "dynadd",
        lambda b, n, g, i: g.dynamicadd(i, axes=[0], sizes=[1]),
        lambda a, o, s: torch.cat([a[:1], a[1:2] + s, a[2:]]),
        f(4, 3),
        np.array([1], np.uint32),
        f(1, 3),
    ),
    case(
        "dynzero",
        lambda b, n, g, i: g.dynamiczero(i, axes=[0], sizes=[1]),
        lambda a, o: torch.cat([a[:1], a[1:2] * 0, a[2:]]),
        f(4, 3),
        np.array([1], np.uint32),
    ),
]


@pytest.mark.parametrize("one", CASES, ids=lambda c: c.name)
def test_agrees_with_torch(one):
    compare(one)
