"""Trees of remote buffers."""

from ..popxl import RemoteBuffer
from .dot_tree import DotTree


class NamedRemoteBuffers(DotTree[RemoteBuffer]):
    """Remote buffers by name."""
