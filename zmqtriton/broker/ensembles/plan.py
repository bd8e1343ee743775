"""An ensemble's configuration: its steps, and the steps that each output needs.

Made once for a generation, from a configuration that the supervisor has checked; it never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from zmqtriton_floor.reshaping import Reshaping
from zmqtriton_floor.wire import Tensor

#: Maximum number of combinations of outputs whose selections are kept; clients ask for few. Others
#: are worked out each time.
_MAX_SELECTIONS = 64


class EnsembleStep(NamedTuple):
    """A call of one model within the ensemble."""

    number: int
    model: str
    version: int
    #: Pairs of an input's name in the model and the name of the ensemble's tensor that it gets.
    inputs: tuple[tuple[str, str], ...]
    #: Names of the ensemble's tensors that the step makes, by the model's names of its outputs.
    outputs: dict[str, str]
    reads: frozenset[str]

    def named(self, outputs: Iterable[Tensor]) -> dict[str, Tensor]:
        """Return the model's outputs that the ensemble uses, by the ensemble's names."""
        used = self.outputs
        return {used[tensor.name]: tensor for tensor in outputs if tensor.name in used}


class Selection(NamedTuple):
    """The steps that must run for a set of outputs."""

    outputs: tuple[str, ...]
    #: Steps that read a tensor, by the tensor's name.
    readers: dict[str, list[EnsembleStep]]
    #: Names of the used outputs of a step's model, by the step's number.
    used_outputs: dict[int, list[str]]

    def uses(self, tensor: str) -> int:
        """Count how often a tensor is read."""
        return len(self.readers.get(tensor, ())) + (tensor in self.outputs)


class EnsemblePlan:
    def __init__(self, model: str, config: dict[str, Any]) -> None:
        self.model = model
        scheduling = config["ensemble_scheduling"]
        self.steps = [_step(number, entry) for number, entry in enumerate(scheduling["step"])]
        self.inputs = tuple(entry["name"] for entry in config.get("input", []))
        self.is_batching = config.get("max_batch_size", 0) > 0
        #: Reshapes tensors between the ensemble and its clients.
        self.reshaping = Reshaping(config)
        #: The rank of each output within the ensemble, the batch dimension included.
        self.outputs = {
            entry["name"]: _rank(entry) + self.is_batching for entry in config.get("output", [])
        }
        #: Maximum number of unanswered requests of one step in each run; 0: no limit.
        self.max_at_once = int(scheduling.get("max_inflight_requests", 0))
        self._writers = {name: step for step in self.steps for name in step.outputs.values()}
        self._everything = self._select(tuple(sorted(self.outputs)))
        #: Selections by requested outputs.
        self._selections: dict[tuple[str, ...], Selection] = {}

    def select(self, outputs: Sequence[str]) -> Selection:
        """Return the steps for these outputs, or for all of them if none are named.

        Outputs come in the order of their names, as Triton's do.
        """
        if not outputs:
            return self._everything
        key = tuple(sorted(set(outputs)))
        selection = self._selections.get(key)
        if selection is None:
            selection = self._select(key)
            if len(self._selections) < _MAX_SELECTIONS:
                self._selections[key] = selection
        return selection

    def _select(self, outputs: tuple[str, ...]) -> Selection:
        needed: dict[int, EnsembleStep] = {}
        tensors = list(outputs)
        for name in tensors:
            step = self._writers.get(name)
            if step is not None and step.number not in needed:
                needed[step.number] = step
                tensors += step.reads
        readers: dict[str, list[EnsembleStep]] = {}
        for _, step in sorted(needed.items()):
            for name in step.reads:
                readers.setdefault(name, []).append(step)
        used = readers.keys() | set(outputs)
        used_outputs = {
            step.number: [name for name, tensor in step.outputs.items() if tensor in used]
            for step in needed.values()
        }
        return Selection(outputs, readers, used_outputs)


def _rank(entry: dict[str, Any]) -> int:
    reshape = entry.get("reshape")
    return len(entry["dims"] if reshape is None else reshape.get("shape") or [])


def _step(number: int, entry: dict[str, Any]) -> EnsembleStep:
    inputs = entry["input_map"]
    return EnsembleStep(
        number,
        entry["model_name"],
        int(entry.get("model_version", 0)) or -1,  # absent means 0 here
        tuple(inputs.items()),
        entry["output_map"],
        frozenset(inputs.values()),
    )


def fit_batch_dimension(shape: list[int], rank: int, *, is_batching: bool) -> list[int]:
    """Add or drop the first dimension of a tensor if only one side has batches.

    The batch then has one element.
    """
    if is_batching and len(shape) + 1 == rank:
        return [1, *shape]
    if not is_batching and rank and len(shape) == rank + 1 and shape[0] == 1:
        return shape[1:]
    return shape
