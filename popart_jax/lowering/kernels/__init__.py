"""How operators are computed on the platform that runs the program; what they compute they say themselves.

There are two kinds. The passes put nodes of the domain ``popart_jax`` in the place of operators: forms with channels
last, and, where quantisation is trained, forms that gradients pass. And computations that several operators share have
other forms (`ops.kernels`).
"""

from __future__ import annotations

DOMAIN = "popart_jax"
MODULES = {
    "channels_last": (
        "AveragePool BatchNormalization ChannelAffine Conv ConvTranspose GlobalAveragePool MaxPool SharedRelu"
    ),
    "integers": "ConvInteger QLinearConv",
    "slices_in_turn": "SliceInTurn",
    "straight_through": "StraightThroughDequantize StraightThroughDynamicQuantize StraightThroughQuantize",
}
"""Names of the operators by the module that translates them."""
FORMS = {
    "depthwise": "convolve",
    "group_norm": "group_standardise",
    "integers": "integer_convolution integer_product",
    "lstm": "accurate_tanh logistic lstm_scan",
    "windows": "fold_windows share_gradient",
}
"""Names of the computations by the module that has other forms of them."""
