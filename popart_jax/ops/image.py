"""Decoding of image files, on the host, by Pillow."""

from __future__ import annotations

import io

import numpy as np

from ..errors import popart_exception
from .registry import Static, lowers

_MODES = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}


@lowers("ImageDecoder", 20)
def image_decoder(encoded: Static, /, *, pixel_format: str = "RGB") -> np.ndarray:
    """Bytes of a file to (height, width, channels) UINT8.

    An unknown format, bytes that are no image, and an installation without Pillow raise popart_exception.
    """
    if pixel_format not in _MODES:
        raise popart_exception(f"ImageDecoder: pixel_format {pixel_format!r} is none of {sorted(_MODES)}")
    try:
        from PIL import Image
    except ImportError:
        raise popart_exception("ImageDecoder needs Pillow: pip install 'popart-jax[image]'") from None
    try:
        picture = Image.open(io.BytesIO(np.asarray(encoded, np.uint8).tobytes())).convert(_MODES[pixel_format])
    except OSError as err:
        raise popart_exception(f"ImageDecoder: the bytes are no image that Pillow reads: {err}") from err
    pixels = np.asarray(picture)
    return pixels[..., None] if pixel_format == "Grayscale" else pixels[..., ::-1] if pixel_format == "BGR" else pixels
