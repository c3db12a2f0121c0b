"""What a session's constructor does: from model, options and optimizer to a step program."""

from __future__ import annotations

from .prepared import Prepared as Prepared
from .prepared import prepare as prepare
