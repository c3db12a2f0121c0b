"""Random damage of models: of their bytes, and of the fields of their message."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import DecodeError

_NUMBERS = (0, 1, -1, 2, 3, 7, 16, 127, 128, 255, 1 << 16, 1 << 31, (1 << 31) - 1, -(1 << 31), 1 << 40, 1 << 62,
            (1 << 63) - 1, -(1 << 63))  # fmt: skip
_REALS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e30, 3.5e38, float("inf"), float("-inf"), float("nan"))
_TEXTS = (
    "",
    "x",
    "y",
    "\0",
    "../x",
    "Identity",
    "Loop",
    "If",
    "ai.onnx",
    "com.microsoft",
    "ai.onnx.ml",
    "é" * 3,
    "a" * 999,
)


def mutated(data: bytes, others: Sequence[bytes], dice: random.Random) -> bytes:
    """A model with one to four random changes, half of which keep its message well formed."""
    for _ in range(dice.choice((1, 1, 2, 4))):
        data = _of_fields(data, dice) if dice.random() < 0.5 else _of_bytes(data, dice.choice(others), dice)
    return data


def _of_bytes(data: bytes, other: bytes, dice: random.Random) -> bytes:
    if not data:
        return other
    a, b = sorted((dice.randrange(len(data)), min(len(data), dice.randrange(len(data)) + 1)))
    at, far = dice.randrange(len(data)), min(len(other), dice.randrange(40))
    match dice.randrange(8):
        case 0:
            return data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :]
        case 1:
            return data[:at] + bytes([dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))]) + data[at + 1 :]
        case 2:
            return data[:a] + data[b:]
        case 3:
            return data[:b] + data[a:]
        case 4:
            return data[:at]
        case 5:
            return data[:at] + b"\xff" * 9 + b"\x01" + data[at + 1 :]
        case 6:
            begin = dice.randrange(len(other)) if other else 0
            return data[:at] + other[begin : begin + far] + data[at:]
        case _:
            return data[:at] + dice.randbytes(dice.randrange(1, 9)) + data[at + 8 :]


def _of_fields(data: bytes, dice: random.Random) -> bytes:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        return data
    places = list(_places(model, 0))
    if not places:
        return data
    message, field = dice.choice(places)
    try:
        (_change_many if _is_many(field) else _change_one)(message, field, dice)
        return model.SerializeToString()
    except (ValueError, TypeError, UnicodeError, RecursionError):
        return data


def _is_many(field: Any) -> bool:
    return field.is_repeated if hasattr(field, "is_repeated") else field.label == Field.LABEL_REPEATED


def _places(message: Any, depth: int) -> Any:
    """Every set field, and some unset ones, of a message and its nested messages."""
    for field, value in message.ListFields():
        yield message, field
        if field.type == Field.TYPE_MESSAGE and depth < 30:
            for inner in value if _is_many(field) else (value,):
                yield from _places(inner, depth + 1)
    if message.DESCRIPTOR.name in ("NodeProto", "TensorProto", "AttributeProto", "GraphProto", "ModelProto"):
        absent = [f for f in message.DESCRIPTOR.fields if f.type != Field.TYPE_MESSAGE]
        yield message, absent[depth % len(absent)]


def _value(field: Any, dice: random.Random) -> Any:
    if field.type in (Field.TYPE_FLOAT, Field.TYPE_DOUBLE):
        return dice.choice(_REALS)
    if field.type == Field.TYPE_STRING:
        return dice.choice(_TEXTS)
    if field.type == Field.TYPE_BYTES:
        return dice.choice((b"", b"\xff", b"\0" * 8, dice.randbytes(dice.randrange(99))))
    if field.type == Field.TYPE_ENUM:
        return dice.choice(field.enum_type.values).number
    return dice.choice((*_NUMBERS, dice.randrange(40)))


def _change_one(message: Any, field: Any, dice: random.Random) -> None:
    if field.type == Field.TYPE_MESSAGE or dice.random() < 0.15:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, _value(field, dice))


def _change_many(message: Any, field: Any, dice: random.Random) -> None:
    values = getattr(message, field.name)
    at, what = dice.randrange(len(values)) if len(values) else 0, dice.randrange(5)
    if what == 0 and len(values):
        del values[at]
    elif what == 1 and len(values):
        values.append(values[at])
    elif what == 2 and len(values) > 1:
        kept = [values.pop() for _ in range(len(values))]
        dice.shuffle(kept)
        values.extend(kept)
    elif field.type != Field.TYPE_MESSAGE:
        if len(values) and what == 3:
            values[at] = _value(field, dice)
        else:
            values.append(_value(field, dice))
    elif len(values):
        message.ClearField(field.name)
