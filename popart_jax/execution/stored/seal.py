"""The seal on machine code in files: an HMAC with a key that only this user can read.

Loading machine code means running it. So a program is loaded from a file only if this user's key sealed it; someone who
can merely write to the folder can't produce such a file.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path

from ...errors import popart_exception

_BYTES = 32
_PURPOSE = b"popart_jax executable, version 1\n"


def key_file() -> Path:
    """Path of this user's key: `popart_jax/seal.key` in the data folder (``XDG_DATA_HOME``).

    A user without home folder raises popart_exception.
    """
    try:
        data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    except RuntimeError as err:
        raise popart_exception(f"There is no place for the key that seals executables: {err}") from err
    return Path(data) / "popart_jax" / "seal.key"


def sealed(data: bytes) -> str:
    """The seal of some bytes; creates this user's key if there is none.

    A key that can't be created, or that others can read, raises popart_exception.
    """
    path = key_file()
    try:
        if not path.exists():
            _make(path)
        return _seal(_read(path), data)
    except OSError as err:
        raise popart_exception(f"The key that seals executables can't be made or read: {err}") from err


def require_sealed(data: bytes, seal: str, what: str) -> None:
    """Refuse bytes that this user's key did not seal; `seal` came with them, `what` is their name.

    Raises popart_exception where another key sealed them, they were changed since, or there is no key.
    """
    path = key_file()
    try:
        key = _read(path)
    except OSError as err:
        raise popart_exception(f"{what} holds machine code, and there is no key to check its seal with: {err}") from err
    if not hmac.compare_digest(_seal(key, data).encode(), seal.encode()):
        raise popart_exception(
            f"{what} holds machine code that the key in {path} did not seal: another user made it, or it was changed."
            "\n  fix: compile here, or copy that key from the machine where it was made, if you trust it."
        )


def _seal(key: bytes, data: bytes) -> str:
    return hmac.new(key, _PURPOSE + data, hashlib.sha256).hexdigest()


def _read(path: Path) -> bytes:
    careful = ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY")  # does not follow a link or wait for a pipe
    descriptor = os.open(path, sum((getattr(os, name, 0) for name in careful), os.O_RDONLY))
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        foreign = os.name == "posix" and (facts.st_uid != os.geteuid() or facts.st_mode & 0o077)
        key = file.read(_BYTES + 1) if stat.S_ISREG(facts.st_mode) and not foreign else b""
    if foreign:
        raise popart_exception(
            f"{path} must belong to you and be readable by you alone.\n  fix: delete it, or chmod 600 it."
        )
    if len(key) != _BYTES:
        raise popart_exception(f"{path} is no key of {_BYTES} bytes.\n  fix: delete it; a new one is made.")
    return key


def _make(path: Path) -> None:
    """Create the key unless another process was faster."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(part, path)  # unlike a rename, does not replace an existing key
    finally:
        part.unlink(missing_ok=True)
