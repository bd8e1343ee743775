"""DLPack capsules made by hand, as another library would make them, and what becomes of them.

The structures are written down here once more, from the definition of DLPack.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

_NEW_CAPSULE = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)(("PyCapsule_New", ctypes.pythonapi))
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
#: For ever: a capsule keeps nothing alive, and a deleter must outlive its own call.
_keep_alive: list[Producer] = []


class Producer:
    """An array that is given away as a capsule; `deleted` counts how often it has been deleted."""

    def __init__(
        self,
        array: Any,
        *,
        code: int | None = None,
        bits: int | None = None,
        lanes: int = 1,
        device: int = 1,
        strides: Sequence[int] | None = None,
        offset: int = 0,
        is_versioned: bool = False,
        is_read_only: bool = False,
    ) -> None:
        self.deleted = 0
        self.name = b"dltensor_versioned" if is_versioned else b"dltensor"
        self._array = array
        self._device = device
        self._deleter = _DELETER(self._delete)
        self._dims = (ctypes.c_int64 * max(1, array.ndim))(*array.shape)
        self._strides = None if strides is None else (ctypes.c_int64 * len(strides))(*strides)
        tensor = struct.pack(
            "@PiiiBBHPPQ",
            array.ctypes.data - offset,
            device,
            0,
            array.ndim,
            _CODES[array.dtype.kind] if code is None else code,
            array.dtype.itemsize * 8 if bits is None else bits,
            lanes,
            ctypes.addressof(self._dims),
            0 if self._strides is None else ctypes.addressof(self._strides),
            offset,
        )
        deleter = ctypes.cast(self._deleter, ctypes.c_void_p).value
        if is_versioned:
            managed = struct.pack("@IIPPQ", 1, 0, 0, deleter, int(is_read_only)) + tensor
        else:
            managed = tensor + struct.pack("@PP", 0, deleter)
        self._managed = ctypes.create_string_buffer(managed, len(managed))

    def capsule(self) -> Any:
        _keep_alive.append(self)
        return _NEW_CAPSULE(ctypes.addressof(self._managed), self.name, None)

    def __dlpack__(self) -> Any:
        return self.capsule()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device, 0

    def _delete(self, address: int) -> None:
        assert address == ctypes.addressof(self._managed)
        self.deleted += 1


def bfloat16(*numbers: float) -> Any:
    """As numpy can hold them."""
    return (np.array(numbers, np.float32).view(np.uint32) >> 16).astype(np.uint16)
