"""Host memory that XLA takes as it is."""

from __future__ import annotations

import numpy as np
import pytest

from popart_jax.buffers import ALIGNMENT, aligned_copy


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5])
@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int32])
def test_a_copy_of_one_repeated_number_is_its_own(value: float, kind: type) -> None:
    repeated = np.broadcast_to(kind(value), (3, 5))
    copied = aligned_copy(repeated)
    assert copied.tobytes() == repeated.tobytes()
    assert copied.dtype == kind
    assert copied.ctypes.data % ALIGNMENT == 0
    copied[1, 2] = 7
    assert (copied == 7).sum() == 1
