"""Operator translations: one table, one module per operator family."""

from __future__ import annotations

from .custom import custom_op as custom_op
from .registry import (
    Context as Context,
    Key as Key,
    Lowering as Lowering,
    NodeRef as NodeRef,
    Opset as Opset,
    Options as Options,
    OutputCount as OutputCount,
    PopartMode as PopartMode,
    Static as Static,
    Subgraph as Subgraph,
    Training as Training,
    direct as direct,
    lowers as lowers,
    resolve as resolve,
    table as table,
)
