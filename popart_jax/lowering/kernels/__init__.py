"""Implementations of operators for the platform that runs the program; what is computed does not depend on them.

There are two kinds. Nodes of the domain ``popart_jax`` are inserted by the passes in place of ONNX operators:
channels-last operators, and straight-through operators for quantisation-aware training. Computations that several
operators share have alternative forms (`ops.kernels`).
"""

DOMAIN = "popart_jax"
MODULES = {
    "channels_last": (
        "AveragePool BatchNormalization ChannelAffine Conv ConvTranspose GlobalAveragePool Kept MaxPool SharedRelu"
    ),
    "dequantised": "DequantisedConv DequantisedMatMul",
    "in_pieces": "InPieces",
    "integers": "ConvInteger QLinearConv",
    "slices_in_turn": "SliceInTurn",
    "stored_weights": "MatMul",
    "straight_through": "StraightThroughDequantize StraightThroughDynamicQuantize StraightThroughQuantize",
}
"""Operators by the module that translates them."""
FORMS = {
    "blending": "blend",
    "depthwise": "convolve",
    "group_norm": "group_normalise",
    "integers": "integer_convolution integer_product",
    "leading_axes": "largest smallest spread total",
    "lstm": "accurate_tanh logistic lstm_scan",
    "windows": "fold_windows share_gradient",
}
"""Computations by the module that has alternative forms of them."""
