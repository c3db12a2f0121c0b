"""PopART's update equations in float64 NumPy, written from its documentation and independently of the package."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass
class Setting:
    """How gradients combine: A micro-batches, R replicas, accumulation on or off, Sum or Mean, Post or Running."""

    accumulate: bool = False
    micro: int = 1
    replicas: int = 1
    mean: bool = False
    running: bool = False

    @property
    def divisor(self) -> float:
        if not self.mean or self.running:
            return 1.0
        return (self.micro if self.accumulate else 1) * self.replicas

    def combine(self, grads: np.ndarray) -> np.ndarray:
        """grads [A, R, *shape]."""
        if self.mean and self.running:
            return grads.mean((0, 1))
        return grads.sum((0, 1))


@dataclass
class Trained:
    """A weight and its optimizer state."""

    w: np.ndarray
    memory: dict[str, np.ndarray | float] = field(default_factory=dict)


def sgd(t: Trained, grads: np.ndarray, h: dict, s: Setting) -> None:
    lr, wd, dm, ls = h["lr"], h["wd"], h["dm"], h["ls"]
    g = s.combine(grads)
    t.w = t.w * (1 - lr * (1 - dm) * wd) - lr * (1 - dm) / (ls * s.divisor) * g


def sgd_separate(t: Trained, grads: np.ndarray, h: dict, s: Setting) -> None:
    lr, wd, mm, dm, vs, ls = (h[k] for k in ("lr", "wd", "mm", "dm", "vs", "ls"))
    g = s.combine(grads)
    v = t.memory.get("v", np.zeros_like(t.w))
    v = mm * v + (1 - dm) * wd * vs * t.w
    v = v + (1 - dm) * vs / (ls * s.divisor) * g
    u = vs * (g / ls + wd * t.w) + mm * v if h["nesterov"] else v
    t.w, t.memory["v"] = t.w - lr / vs * u, v


def sgd_combined(t: Trained, grads: np.ndarray, h: dict, s: Setting) -> None:
    lr, wd, mm, dm, vs, ls = (h[k] for k in ("lr", "wd", "mm", "dm", "vs", "ls"))
    q = s.replicas if s.accumulate else 1
    a1 = s.micro if s.mean else 1
    c = 1.0
    if s.accumulate and not s.mean:
        c = s.replicas
    elif not s.accumulate and s.mean:
        c = 1 / s.replicas
    k = (1 - dm) * vs * c / (ls * a1)
    v = t.memory.get("v", (1 - dm) * wd * vs * t.w)
    if s.accumulate:
        v = sum(v + k * grads[:, r].sum(0) for r in range(s.replicas))
    else:
        v = v + k * grads[0].sum(0)
    inverse = 1 / (ls * s.micro) if s.mean and s.running else 1 / ls
    u = vs * q * (grads.sum((0, 1)) * inverse + wd * t.w) + mm * v if h["nesterov"] else v
    t.w = t.w - lr / (vs * q) * u
    t.memory["v"] = mm / q * v + (1 - dm) * wd * vs * t.w


def adam(t: Trained, grads: np.ndarray, h: dict, s: Setting) -> None:
    lr, wd, b1, b2, eps, ls, mwn = (h[k] for k in ("lr", "wd", "b1", "b2", "eps", "ls", "mwn"))
    mode = h["mode"]
    x = s.combine(grads) / (ls * s.divisor)
    if h["l2"]:
        x = x + wd * t.w
    step = t.memory["t"] = t.memory.get("t", 0) + 1
    m = b1 * t.memory.get("m", 0 * x) + (1 - b1) * x
    old = t.memory.get("v", 0 * x)
    v = np.maximum(b2 * old, abs(x)) if mode == "AdaMax" else b2 * old + (1 - b2) * x**2
    t.memory["m"], t.memory["v"] = m, v
    if mode in ("Adam", "Lamb", "AdaMax"):
        m = m / (1 - b1**step)
    if mode in ("Adam", "Lamb"):
        v = v / (1 - b2**step)
    u = m / (v + eps) if mode == "AdaMax" else m / (np.sqrt(v) + eps)
    if not h["l2"]:
        u = u + wd * t.w
    ratio = 1.0
    if mode.startswith("Lamb") and mwn:
        r1, r2 = np.linalg.norm(t.w), np.linalg.norm(u)
        ratio = min(r1, mwn) / r2 if r1 and r2 else 1.0
    t.w = t.w - lr * ratio * u


def adaptive(t: Trained, grads: np.ndarray, h: dict, s: Setting) -> None:
    lr, wd, a, mm, eps, ls = (h[k] for k in ("lr", "wd", "a", "mm", "eps", "ls"))
    mode, tf = h["mode"], h["tf"]
    x = s.combine(grads) / (ls * s.divisor)
    if h["l2"]:
        x = x + wd * t.w
    v1 = t.memory.get("v1", np.ones_like(x) if tf else np.zeros_like(x))
    v2 = t.memory.get("v2", np.zeros_like(x))
    v1 = v1 + x**2 if mode == "AdaGrad" else a * v1 + (1 - a) * x**2
    if mode == "AdaDelta":
        u = x * np.sqrt(v2 + eps) / np.sqrt(v1 + eps)
        v2 = a * v2 + (1 - a) * u**2
    else:
        spread = v1
        if mode == "CenteredRMSProp":
            v2 = a * v2 + (1 - a) * x
            spread = v1 - v2**2
        u = x / np.sqrt(spread + eps) if tf else x / (np.sqrt(spread) + eps)
    t.memory["v1"], t.memory["v2"] = v1, v2
    momentum = mm is not None
    if momentum:
        v3 = mm * t.memory.get("v3", 0 * x) + (lr * u if tf else u)
        t.memory["v3"] = v3
    else:
        v3 = u
    decay = 0 if h["l2"] else wd * t.w
    t.w = t.w - (v3 + decay) if tf and momentum else t.w - lr * (v3 + decay)
