"""What the passes put in the place of operators: forms with channels last that the backend's kernels run fast.

The operators say what is computed; these say how, and for which platform. Nodes of them stand in the domain
``popart_jax``, which only `passes` write.
"""

from __future__ import annotations

DOMAIN = "popart_jax"
MODULES = {
    "channels_last": (
        "AveragePool BatchNormalization ChannelAffine Conv ConvTranspose GlobalAveragePool MaxPool SharedRelu"
    )
}
"""Names of the operators by the module that translates them."""
