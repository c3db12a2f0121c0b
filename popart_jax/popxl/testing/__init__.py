"""Helpers for tests of programs."""

from ._dtypes import get_all_dtypes as get_all_dtypes
from ._dtypes import get_all_int_dtypes as get_all_int_dtypes
