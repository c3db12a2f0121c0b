"""Recurrent layers and CTC against PyTorch: every optional input, every output, values and gradients."""

from __future__ import annotations

import numpy as np
import pytest

import popart_jax as popart

from .against_torch import case, compare, f

torch = pytest.importorskip("torch")
F = torch.nn.functional
STEPS, BATCH, INPUT, HIDDEN = 5, 3, 4, 2
X, STATE, CELL = f(STEPS, BATCH, INPUT), f(1, BATCH, HIDDEN), f(1, BATCH, HIDDEN) / 2
LENGTHS = np.array([5, 3, 1], np.int32)


def zeros(x):
    return torch.zeros(BATCH, HIDDEN, dtype=x.dtype)


def graphcore_lstm(x, w, bias=None, start=None, lengths=None):
    """Hidden sequence, last hidden and last cell state; gates in the order f, i, candidate, o."""
    h, c = (zeros(x), zeros(x)) if start is None else start
    outputs = []
    for t in range(STEPS):
        z = [x[t] @ w[k][:INPUT] + h @ w[k][INPUT:] + (0 if bias is None else bias[k]) for k in range(4)]
        new_c = torch.sigmoid(z[0]) * c + torch.sigmoid(z[1]) * torch.tanh(z[2])
        new_h = torch.sigmoid(z[3]) * torch.tanh(new_c)
        runs = torch.ones(BATCH, 1, dtype=torch.bool) if lengths is None else (t < lengths)[:, None]
        outputs.append(torch.where(runs, new_h, torch.zeros_like(new_h)))
        h, c = torch.where(runs, new_h, h), torch.where(runs, new_c, c)
    return torch.stack(outputs), h, c


def onnx_lstm(x, w, r, bias=None, h=None, c=None):
    """Y, Y_h and Y_c of ONNX; gates in the order i, o, f, c."""
    h, c = (zeros(x) if s is None else s[0] for s in (h, c))
    outputs = []
    for t in range(STEPS):
        z = x[t] @ w[0].T + h @ r[0].T + (0 if bias is None else sum(bias[0].split(4 * HIDDEN)))
        i, o, forget, cell = z.split(HIDDEN, 1)
        c = torch.sigmoid(forget) * c + torch.sigmoid(i) * torch.tanh(cell)
        h = torch.sigmoid(o) * torch.tanh(c)
        outputs.append(h)
    return torch.stack(outputs)[:, None], h[None], c[None]


def gru(x, w, r, bias, h, linear_before_reset):
    h, outputs, (wb, rb) = h[0], [], bias[0].split(3 * HIDDEN)
    inner = r[0][2 * HIDDEN :].T
    for t in range(STEPS):
        (xz, xr, xh), (hz, hr, _) = ((x[t] @ w[0].T + wb).split(HIDDEN, 1), (h @ r[0].T + rb).split(HIDDEN, 1))
        z, reset = torch.sigmoid(xz + hz), torch.sigmoid(xr + hr)
        last = rb[2 * HIDDEN :]
        seen = reset * (h @ inner + last) if linear_before_reset else (reset * h) @ inner + last
        h = (1 - z) * torch.tanh(xh + seen) + z * h
        outputs.append(h)
    return torch.stack(outputs)[:, None]


def rnn(x, w, r, bias, h, activation=torch.tanh):
    h, outputs = h[0], []
    for t in range(STEPS):
        h = activation(x[t] @ w[0].T + h @ r[0].T + sum(bias[0].split(HIDDEN)))
        outputs.append(h)
    return torch.stack(outputs)[:, None]


def ctc(logits, targets, steps, lengths, **more):
    counts = (v.to(torch.int64) for v in (targets, steps, lengths))
    return F.ctc_loss(logits.log_softmax(2), *counts, **more)


GC = (X, f(4, INPUT + HIDDEN, HIDDEN), f(4, HIDDEN), f(2, BATCH, HIDDEN))
LSTM = (X, f(1, 4 * HIDDEN, INPUT), f(1, 4 * HIDDEN, HIDDEN), f(1, 8 * HIDDEN))
GRU = (X, f(1, 3 * HIDDEN, INPUT), f(1, 3 * HIDDEN, HIDDEN), f(1, 6 * HIDDEN), STATE)
RNN = (X, f(1, HIDDEN, INPUT), f(1, HIDDEN, HIDDEN), f(1, 2 * HIDDEN), STATE)
CTC = (
    f(8, 3, 5), np.array([[1, 2], [2, 2], [3, 1]], np.uint32), np.array([8, 7, 6], np.uint32),
    np.array([2, 2, 1], np.uint32),
)  # fmt: skip
CASES = [
    case("lstm", lambda b, n, g, i: g.lstm(i)[0], lambda *a: graphcore_lstm(*a)[0], *GC),
    case("lstm, weights only", lambda b, n, g, i: g.lstm(i)[0], lambda *a: graphcore_lstm(*a)[0], *GC[:2]),
    case("lstm, bias", lambda b, n, g, i: g.lstm(i, 1)[0], lambda *a: graphcore_lstm(*a)[0], *GC[:3]),
    case(
        "lstm, state without bias",
        lambda b, n, g, i: g.lstm([i[0], i[1], "", i[2]], outputFullSequence=1)[0],
        lambda x, w, s: graphcore_lstm(x, w, None, s)[0],
        *GC[:2],
        GC[3],
    ),
    case(
        "lstm, last hidden state",
        lambda b, n, g, i: g.lstm(i, outputFullSequence=0)[0],
        lambda *a: graphcore_lstm(*a)[1],
        *GC,
    ),
    case("lstm, cell state", lambda b, n, g, i: g.lstm(i)[1], lambda *a: graphcore_lstm(*a)[2], *GC),
    case("lstm, lengths", lambda b, n, g, i: g.lstm(i)[0], lambda *a: graphcore_lstm(*a)[0], *GC, LENGTHS),
    case("lstm, cell after lengths", lambda b, n, g, i: g.lstm(i)[1], lambda *a: graphcore_lstm(*a)[2], *GC, LENGTHS),
    *(
        case(f"ONNX lstm, output {k}", lambda b, n, g, i, k=k: n.lstm(i, 3)[k], lambda *a, k=k: onnx_lstm(*a)[k], *LSTM)
        for k in range(3)
    ),
    case(
        "ONNX lstm, states",
        lambda b, n, g, i: n.lstm([*i[:3], "", "", *i[3:]], 1)[0],
        lambda x, w, r, h, c: onnx_lstm(x, w, r, None, h, c)[0],
        *LSTM[:3],
        STATE,
        CELL,
    ),
    case(
        "ONNX lstm, attributes",
        lambda b, n, g, i: n.lstm(i, 3, hidden_size=2, direction="forward", activations=["Sigmoid", "Tanh", "Tanh"])[0],
        lambda *a: onnx_lstm(*a)[0],
        *LSTM,
    ),
    *(
        case(
            f"gru, linear before reset {k}",
            lambda b, n, g, i, k=k: n.gru([*i[:4], "", i[4]], 2, linear_before_reset=k)[0],
            lambda *a, k=k: gru(*a, linear_before_reset=k),
            *GRU,
        )
        for k in (0, 1)
    ),
    *(
        case(
            f"rnn, {name}",
            lambda b, n, g, i, name=name: n.rnn([*i[:4], "", i[4]], 2, activations=[name])[0],
            lambda *a, fn=fn: rnn(*a, activation=fn),
            *RNN,
        )
        for name, fn in (("Tanh", torch.tanh), ("Relu", torch.relu), ("Sigmoid", torch.sigmoid))
    ),
    case("rnn, last", lambda b, n, g, i: n.rnn([*i[:4], "", i[4]], 2)[1], lambda *a: rnn(*a)[-1], *RNN),
    *(
        case(
            f"ctc, {kind.name}",
            lambda b, n, g, i, kind=kind: g.ctcloss([n.logsoftmax([i[0]], 2), *i[1:]], kind),
            lambda *a, name=name: ctc(*a, reduction=name),
            *CTC,
        )
        for kind, name in (
            (popart.ReductionType.Sum, "sum"),
            (popart.ReductionType.Mean, "mean"),
            (popart.ReductionType.NoReduction, "none"),
        )
    ),
    case(
        "ctc, blank at the end",
        lambda b, n, g, i: g.ctcloss([n.logsoftmax([i[0]], 2), *i[1:]], popart.ReductionType.Sum, 4),
        lambda *a: ctc(*a, reduction="sum", blank=4),
        *CTC,
    ),
]


@pytest.mark.parametrize("one", CASES, ids=lambda c: c.name)
def test_agrees_with_torch(one):
    compare(one)
