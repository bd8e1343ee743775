"""Outputs that a session writes to memory that clients read, if their sizes are known before.

Sizes are numbers in the file, or symbols that its inputs have as well. Binding outputs costs some
microseconds, and saves a copy: so small outputs stay in the session's own memory.
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, Tuple

import numpy as np
import triton_python_backend_utils as pb_utils

#: Copying less costs no more than binding it.
_WORTH_BYTES = 512 << 10

#: The dimensions of a tensor in the file: numbers and symbols, None for any number.
Dims = List[Any]


class BoundOutputs:
    """Runs a session, with large outputs in the server's memory."""

    def __init__(self, session: Any, kinds: Dict[str, Any]) -> None:
        """Set up; `kinds` has numpy's type of each tensor, by name, without those of strings."""
        self._session = session
        self._kinds = kinds
        self._inputs: Dict[str, Dims] = {one.name: one.shape for one in session.get_inputs()}
        self._outputs: Dict[str, Dims] = {one.name: one.shape for one in session.get_outputs()}
        #: False once the file was wrong about a size.
        self._is_right = True

    def run(self, inputs: dict[str, Any], outputs: list[str]) -> list[Any] | None:
        """Return the outputs; None if binding is of no use, and the session must run as usual."""
        sizes = self._sizes(inputs, outputs) if self._is_right else {}
        if not sizes:
            return None
        binding = self._session.io_binding()
        for name, array in inputs.items():
            binding.bind_cpu_input(name, np.ascontiguousarray(array))
        made = {}
        for name in outputs:
            if name in sizes:
                made[name] = array = pb_utils.Tensor.empty(name, *sizes[name]).as_numpy()
                pointer = array.__array_interface__["data"][0]
                binding.bind_output(name, "cpu", 0, array.dtype, array.shape, pointer)
            else:
                binding.bind_output(name)
        try:
            self._session.run_with_iobinding(binding)
        except Exception:  # noqa: BLE001 - the request is wrong, which is told, or the file is
            arrays: list[Any] = self._session.run(outputs, inputs)
            self._is_right = False
            return arrays
        others = dict(zip(outputs, binding.get_outputs()))
        return [made[name] if name in made else others[name].numpy() for name in outputs]

    def _sizes(
        self, inputs: dict[str, Any], outputs: list[str]
    ) -> dict[str, Tuple[Tuple[int, ...], Any]]:
        """Return the shapes and types of large outputs; {} unless all inputs can be bound."""
        numbers: Dict[Any, int] = {}
        for name, array in inputs.items():
            if name not in self._kinds or array.dtype != self._kinds[name]:
                return {}
            numbers.update(zip(self._inputs.get(name, []), array.shape))
        sizes = {}
        for name in outputs:
            dims = [
                dim if type(dim) is int else numbers.get(dim, -1) for dim in self._outputs[name]
            ]
            kind = self._kinds.get(name)
            if kind is None or None in self._outputs[name] or min(dims, default=-1) < 0:
                continue
            if math.prod(dims) * kind.itemsize >= _WORTH_BYTES:
                sizes[name] = tuple(dims), kind
        return sizes
