"""What upstream keeps in C++: enums, operator classes and read-mostly views of the one IR."""

from __future__ import annotations
