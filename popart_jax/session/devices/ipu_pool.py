"""The pool of emulated IPUs of this process, and leases of them."""

from __future__ import annotations

import os
import threading

from ...logs import module_logger

IPU_COUNT_VARIABLE = "POPART_JAX_NUM_IPUS"
_DEFAULT_IPUS = 16


class Pool:
    """Emulated IPUs, single and in groups of 2, 4, ...; an IPU belongs to one lease at a time."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.taken: set[int] = set()
        self.attach_timeout = 900
        self.announced = False

    @property
    def size(self) -> int:
        """Number of IPUs in the pool."""
        return int(os.environ.get(IPU_COUNT_VARIABLE, _DEFAULT_IPUS))

    def groups(self, n: int) -> list[tuple[int, tuple[int, ...]]]:
        """Device numbers and IPUs of all devices with `n` IPUs: first the single ones, then pairs, ..."""
        if n < 1 or n > self.size:
            return []
        first, width = 0, 1
        while width < n:
            first, width = first + self.size // width, width * 2
        return [(first + i, tuple(range(i * n, i * n + n))) for i in range(self.size // n)]

    def by_number(self, number: int) -> tuple[int, ...] | None:
        """The IPUs of a device number; None when there is no such device."""
        n = 1
        while n <= self.size:
            for found, ipus in self.groups(n):
                if found == number:
                    return ipus
            n *= 2
        return None

    def announce(self) -> None:
        """Log, once, that devices are emulated."""
        if not self.announced:
            self.announced = True
            module_logger("devicex").warning(
                "There is no IPU here: acquired devices are emulated, programs run on JAX (%d emulated IPUs, %s "
                "changes that).",
                self.size,
                IPU_COUNT_VARIABLE,
            )


POOL = Pool()


class Lease:
    """The right to use some emulated IPUs."""

    def __init__(self, ipus: tuple[int, ...]) -> None:
        self.ipus = ipus
        self.held = False

    def take(self, timeout: float = 0.0) -> bool:
        """Wait for the IPUs and take them; False when they did not come free in time."""
        with POOL.condition:
            if not POOL.condition.wait_for(lambda: not POOL.taken & set(self.ipus), timeout):
                return False
            POOL.taken |= set(self.ipus)
            self.held = True
            return True

    def give_back(self) -> None:
        """Free the IPUs, if they are held."""
        with POOL.condition:
            if self.held:
                self.held = False
                POOL.taken -= set(self.ipus)
                POOL.condition.notify_all()
