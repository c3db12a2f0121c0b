"""Functions that raise each exception class, for tests of error handling (names of `popart_core`)."""

from __future__ import annotations

from collections.abc import Callable

from . import errors
from ._calls import checked
from .enums import RecoveryAction


def _raiser(name: str, kind: type[Exception]) -> Callable[[str], None]:
    @checked
    def throw(msg: str, /) -> None:
        raise kind(msg)

    throw.__name__ = throw.__qualname__ = name
    throw.__doc__ = f"Raise {kind.__name__}."
    return throw


@checked
def _throw_recoverable_runtime_error(msg: str, /) -> None:
    """Raise poplar_recoverable_runtime_error; its recovery action is IPU_RESET."""
    errors.poplar_recoverable_runtime_error.recoveryAction = RecoveryAction.IPU_RESET
    raise errors.poplar_recoverable_runtime_error(msg)


_throw_popart_error = _raiser("_throw_popart_error", errors.popart_exception)
_throw_popart_internal_error = _raiser("_throw_popart_internal_error", errors.popart_internal_exception)
_throw_popart_runtime_error = _raiser("_throw_popart_runtime_error", errors.popart_runtime_error)
_throw_poplibs_error = _raiser("_throw_poplibs_error", errors.poplibs_exception)
_throw_poplar_error = _raiser("_throw_poplar_error", errors.poplar_exception)
_throw_poplar_runtime_error = _raiser("_throw_poplar_runtime_error", errors.poplar_runtime_error)
_throw_application_runtime_error = _raiser("_throw_application_runtime_error", errors.poplar_application_runtime_error)
_throw_system_runtime_error = _raiser("_throw_system_runtime_error", errors.poplar_system_runtime_error)
_throw_unrecoverable_runtime_error = _raiser(
    "_throw_unrecoverable_runtime_error", errors.poplar_unrecoverable_runtime_error
)
_throw_unknown_runtime_error = _raiser("_throw_unknown_runtime_error", errors.poplar_unknown_runtime_error)
