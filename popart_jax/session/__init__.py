"""The PopART facade: sessions, data flow, step I/O, options, devices. Modules are imported when they are first used."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
