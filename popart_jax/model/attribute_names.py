"""Attribute and metadata names that PopART writes into ONNX files."""

from __future__ import annotations

import onnx_ir as ir

VIRTUAL_GRAPH = "__ipu_number"
PIPELINE_STAGE = "__pipeline_stage"
EXECUTION_PHASE = "__execution_phase"
RECOMPUTE = "__recompute_output_in_backward_pass"
TENSOR_LOCATION = "__output_tensor_location"
SCHEDULE_PRIORITY = "__schedule_priority"
PARTIALS_TYPE = "__partials_type"
AVAILABLE_MEMORY = "__available_memory"
CONV_DITHERING = "__enable_conv_dithering"
SERIALIZE_MODE = "__serialize_matmul_mode"
SERIALIZE_FACTOR = "__serialize_matmul_factor"
SERIALIZE_KEEP_PRECISION = "__serialize_matmul_precision"
INPLACE_NAMES = "__inplace_op_names"
INPLACE_PRIORITIES = "__inplace_op_priorities"
EXCLUDE_PATTERNS = "__exclude_patterns"
OUTLINE = "__outline"
COMM_GROUP = "__collectiveCommGroup"
REPLICA_GROUPING = "__collectiveReplicaGrouping"
COLLECTIVE_OPERATOR = "__collectiveOperator"
DEBUG_INFO = "__debug_info_id"
"""Number of a node in the graph that a Builder made; readers of `getAllNodeAttributeNames` expect one."""

BUILDER_GRAPH = "BuilderGraph_"
"""Names of graphs that the program has not named; a number follows, from a counter of the process."""

CONSTANT = "popart_jax.constant"
"""Metadata key of Constant nodes that a Builder or a GraphTransformer made: whoever asked for one wants no weight."""

QUANTISED = "popart_jax.quantised"
"""Metadata key of float weights that stand for integer weights of the file, with the type of these."""

REPLICATION_FACTOR = "__replicationFactor"
TYPES = {
    **dict.fromkeys(
        (VIRTUAL_GRAPH, PIPELINE_STAGE, EXECUTION_PHASE, RECOMPUTE, SERIALIZE_FACTOR), ir.AttributeType.INT
    ),
    **dict.fromkeys((PARTIALS_TYPE, SERIALIZE_MODE), ir.AttributeType.STRING),
    **dict.fromkeys((INPLACE_NAMES, EXCLUDE_PATTERNS), ir.AttributeType.STRINGS),
    INPLACE_PRIORITIES: ir.AttributeType.FLOATS,
}
"""Types of the attributes that are read without another check."""

_INPUT_METADATA = ("tile_set", "exchange_strategy", "replicated_stream_mode")


def input_metadata(tensor: str) -> tuple[str, str, str]:
    """Metadata keys of a streamed input: tile set, exchange strategy, replicated stream mode."""
    tiles, exchange, mode = (f"__{kind}/{tensor}" for kind in _INPUT_METADATA)
    return tiles, exchange, mode


_VARIABLE_METADATA = ("comm_group_type", "comm_group_size", "variable_settings", "comm_group_stride")


def variable_metadata(tensor: str) -> tuple[str, str, str, str]:
    """Metadata keys of an initializer: group type, group size, retrieval mode, and the stride where groups have one.

    PopART writes no stride, so that its models lose such groups.
    """
    kind, size, mode, stride = (f"__{key}/{tensor}" for key in _VARIABLE_METADATA)
    return kind, size, mode, stride


DEBUG_ID = "__debug_id/"
"""Start of the metadata keys of debug records, whose values come from a counter of the process."""


def debug_id(kind: str, tensor: str) -> str:
    """Metadata key of the debug record of an input or initializer."""
    return f"{DEBUG_ID}{kind}/{tensor}"
