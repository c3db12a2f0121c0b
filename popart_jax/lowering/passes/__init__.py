"""Layout and kernel choice, as rewrites of the session's own copy of the graph just before lowering."""

from __future__ import annotations

from .channels_last import channels_last as channels_last
