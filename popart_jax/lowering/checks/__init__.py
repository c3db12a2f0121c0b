"""Checks around each node while tracing (types, ranks and sizes of tensors), and errors that name the node."""
