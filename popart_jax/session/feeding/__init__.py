"""Step I/O: inputs of a step and its anchors, by `PyStepIO`, callbacks or streams."""
