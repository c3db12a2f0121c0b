"""The planners of PopLibs as pure functions: how one operation is spread over the tiles, and what it costs there.

One module per family: `convolution` (also matrix products and dense layers; its parts are the ``conv_*`` modules),
`pooling`, `reduction`, `embedding`, `rnn`, `solver`, `ctc`, and `mapping` for tensors dealt out in order. Each takes
shapes and a target and returns a `Plan`: quantities that the target's constants turn into cycles. The search reads only
the static half of a target and is memoised on it; the price of a plan is differentiable in the rest. `surface` relaxes
the rounding of any of them, for slopes in sizes.
"""
