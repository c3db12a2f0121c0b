"""PopXL programs behind PopART's session interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._building.bindings import above
from ..ir import Ir
from ..session import Session

if TYPE_CHECKING:
    from .pb_session import PopxlInferenceSession


@above.enter("inference_session")
def inference_session(ir: Ir, device: Any, session: Session | None = None) -> PopxlInferenceSession:
    """An Ir as an inference session, with the session that runs it where there is one already."""
    from .pb_session import PopxlInferenceSession  # PopART's sessions take a while to import

    return PopxlInferenceSession(ir, device, session)
