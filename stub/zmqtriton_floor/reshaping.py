"""The option `reshape`: tensors whose shape differs between the model and its clients.

Applied where requests reach a model or an ensemble and where its responses leave. Requests were
checked against the clients' shapes; only shapes change here, never data.
"""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

from zmqtriton_floor.datatypes import count_elements
from zmqtriton_floor.errors import InternalError
from zmqtriton_floor.wire import Tensor

#: The dimensions after that of a batch, before a change and after it; -1 is any length.
_Change = Tuple[Sequence[int], Sequence[int]]


class Reshaping:
    """The reshapes of one configuration; as a condition, it is False without any."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._batch_dims = 1 if config.get("max_batch_size", 0) else 0
        self._inputs = {
            entry["name"]: (entry["dims"], entry["reshape"].get("shape") or [])
            for entry in config.get("input", [])
            if entry.get("reshape") is not None
        }
        self._outputs = {
            entry["name"]: (entry["reshape"].get("shape") or [], entry["dims"])
            for entry in config.get("output", [])
            if entry.get("reshape") is not None
        }

    def __bool__(self) -> bool:
        return bool(self._inputs or self._outputs)

    def for_model(self, inputs: Sequence[Tensor]) -> List[Tensor]:
        """Return the inputs as the model sees them."""
        return [self._apply(self._inputs, tensor) for tensor in inputs]

    def for_client(self, outputs: Sequence[Tensor]) -> List[Tensor]:
        """Return the outputs as clients see them.

        Raises InternalError if a model's tensor has another number of elements.
        """
        changed = [self._apply(self._outputs, tensor) for tensor in outputs]
        for before, after in zip(outputs, changed):
            if count_elements(before.shape) != count_elements(after.shape):
                raise InternalError(
                    f"output tensor shape does not match size of output for '{after.name}'"
                )
        return changed

    def _apply(self, changes: dict[str, _Change], tensor: Tensor) -> Tensor:
        change = changes.get(tensor.name)
        if change is None:
            return tensor
        own_dims, dims = change
        batch, shape = tensor.shape[: self._batch_dims], tensor.shape[self._batch_dims :]
        free = [size for size, dim in zip(shape, own_dims) if dim == -1]
        if len(free) == sum(dim == -1 for dim in dims):
            sizes = iter(free)
            return tensor._replace(
                shape=[*batch, *(next(sizes) if dim == -1 else dim for dim in dims)]
            )
        # the model made another number of dimensions, which cannot be right
        return tensor._replace(shape=[0])
