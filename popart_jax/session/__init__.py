"""The PopART facade: sessions, data flow, step I/O, options, devices. Modules are imported when they are first used."""

import lazy_loader as _lazy

from .._process.random_state import random_state_kept as _random_state_kept

_import, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
__getattr__ = _random_state_kept()(_import)
