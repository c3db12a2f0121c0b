"""`getLogger`: PopART's public loggers, one per module of `logs`."""

from __future__ import annotations

import logging

from ._calls import checked
from .logs import MODULES, level_number, module_logger


class Logger:
    """Sets the level of one module or all; messages logged through it belong to the module ``python``."""

    def __init__(self, name: str = "all") -> None:
        self._name = name

    @checked
    def setLevel(self, level: str, /) -> None:
        """Set the level: TRACE, DEBUG, INFO, WARN, ERR, CRITICAL or OFF. Any other text means OFF."""
        number = level_number(level)
        if self._name == "all":
            for module in MODULES:
                module_logger(module).setLevel(logging.NOTSET)
        module_logger(self._name).setLevel(number)

    @checked
    def debug(self, message: str, /) -> None:
        """Log at level DEBUG."""
        module_logger("python").debug("%s", message)

    @checked
    def info(self, message: str, /) -> None:
        """Log at level INFO."""
        module_logger("python").info("%s", message)

    @checked
    def warn(self, message: str, /) -> None:
        """Log at level WARN."""
        module_logger("python").warning("%s", message)

    @checked
    def error(self, message: str, /) -> None:
        """Log at level ERR."""
        module_logger("python").error("%s", message)

    @checked
    def critical(self, message: str, /) -> None:
        """Log at level CRITICAL."""
        module_logger("python").critical("%s", message)


@checked
def getLogger(name: str = "all") -> Logger:
    """The logger of a module, or of all modules."""
    return Logger(name)
