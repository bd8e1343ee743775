"""Implicit states: tensors that a model outputs for a sequence and gets with its next request.

Each request is completed here with states, and the new states in a response are kept before it is
sent. States stay in this process; the broker reports the end of a sequence. There are as many
sequences at once as the instance has slots, with one value for each state.
"""

from __future__ import annotations

import os
from typing import Any, Iterable, NamedTuple

import numpy as np

from zmqtriton_floor import wire
from zmqtriton_floor.datatypes import BY_CONFIG_NAME, BY_NUMBER, Datatype, count_elements
from zmqtriton_stub.api.callers import ServedRequest
from zmqtriton_stub.api.inference import InferenceResponse
from zmqtriton_stub.api.tensor import packed
from zmqtriton_stub.memory import gpu

_FOLDER = "initial_state"


class _State(NamedTuple):
    """One state of the configuration."""

    input: str
    output: str
    #: The initial value of a sequence.
    first: wire.Tensor
    #: The model may write into what is kept, in place of giving another tensor.
    is_shared: bool


class States:
    """All states that one instance keeps; as a condition, False if its model has none."""

    def __init__(self, config: dict[str, Any], directory: str) -> None:
        batching = config.get("sequence_batching") or {}
        is_batching = bool(config.get("max_batch_size"))
        self._is_iterative = bool(batching.get("iterative_sequence"))
        #: States by input. Of two with the same name the first one counts, as in Triton.
        self._states: dict[str, _State] = {}
        self._by_output: dict[str, _State] = {}
        for entry in batching.get("state") or []:
            state = _read(entry, directory, is_batching=is_batching)
            if state.input not in self._states and state.output not in self._by_output:
                self._states[state.input] = self._by_output[state.output] = state
        #: The datatypes of its states as outputs.
        self.outputs = {name: state.first.datatype for name, state in self._by_output.items()}
        #: The current states of sequences, by input.
        self.sequences: dict[wire.Correlation, dict[str, wire.Tensor]] = {}

    def __bool__(self) -> bool:
        return bool(self._states)

    def give(
        self, pending: ServedRequest, inputs: list[wire.Tensor], batch: Iterable[ServedRequest]
    ) -> list[wire.Tensor]:
        """Return the inputs followed by the states of the sequence.

        A client's tensors with names of states are dropped. `batch` has all requests that are
        executed together, including this one.
        """
        own_inputs = [tensor for tensor in inputs if tensor.name not in self._states]
        if pending.work.flags & wire.PADDING:
            return own_inputs + self._blanks(batch)
        kept = pending.states = self._of(pending)
        return own_inputs + [
            kept[name]._replace(data=memoryview(kept[name].data)) if state.is_shared else kept[name]
            for name, state in self._states.items()
        ]

    def _blanks(self, batch: Iterable[ServedRequest]) -> list[wire.Tensor]:
        """Return the states of a slot without a request: zeros.

        As in Triton they have the shapes of another request's, so that all fit into one batch.
        """
        others = (self._kept(one) for one in batch if not one.work.flags & wire.PADDING)
        kept = next(others, None) or self._begin()
        return [
            tensor._replace(data=_zeros(BY_NUMBER[tensor.datatype], tensor.shape))
            for tensor in (kept[name] for name in self._states)
        ]

    def _of(self, pending: ServedRequest) -> dict[str, wire.Tensor]:
        """Return the states of a request's sequence before its execution, and store new ones."""
        kept = self._kept(pending)
        if kept is None:
            kept = self._begin()
            if not self._is_iterative:
                self.sequences[pending.work.correlation] = kept
        return kept

    def _kept(self, pending: ServedRequest) -> dict[str, wire.Tensor] | None:
        """Return the states that a request continues; None if its sequence begins with it."""
        if self._is_iterative:  # which is a sequence by itself
            return pending.states
        if pending.work.flags & wire.SEQUENCE_START:
            return None
        return self.sequences.get(pending.work.correlation)

    def _begin(self) -> dict[str, wire.Tensor]:
        return {
            name: state.first._replace(data=bytearray(state.first.data))
            if state.is_shared
            else state.first
            for name, state in self._states.items()
        }

    def changes(
        self, pending: ServedRequest, response: InferenceResponse
    ) -> dict[str, wire.Tensor]:
        """Return the states that this response changes, by input."""
        changed: dict[str, wire.Tensor] = {}
        if pending.states is None or response._error is not None:
            return changed
        for tensor in response._output_tensors:
            state = self._by_output.get(tensor._name)
            if state is not None:
                row = packed(tensor)
                kept = pending.states[state.input].data
                data = _kept(row.data, kept) if state.is_shared else _copied(row.data)
                changed[state.input] = row._replace(name=state.input, data=data)
        return changed

    def end(self, correlation: wire.Correlation) -> None:
        """Drop the states of an ended sequence."""
        self.sequences.pop(correlation, None)

    def clear(self) -> None:
        """Drop the states of all sequences."""
        self.sequences.clear()


def changed_states(
    states: States | None, pending: ServedRequest, response: InferenceResponse | None
) -> dict[str, wire.Tensor]:
    """Return the states of the request's sequence to keep when this response leaves."""
    return {} if states is None or response is None else states.changes(pending, response)


def keep_states(pending: ServedRequest, changes: dict[str, wire.Tensor]) -> None:
    if pending.states is not None:
        pending.states.update(changes)


def _copied(data: Any) -> bytes:
    """Return a copy: the model may write to its output later, and inputs have other owners."""
    return bytes(gpu.downloaded(data) if type(data) is gpu.DeviceSpan else data)


def _kept(data: Any, kept: bytearray) -> bytearray:
    """Return the state to keep: the kept one if the model returns its memory, else a copy."""
    if type(data) is memoryview and len(data) == len(kept):
        new, own = np.frombuffer(data, np.uint8), np.frombuffer(kept, np.uint8)
        if np.shares_memory(new, own):
            return kept
    return bytearray(_copied(data))


def _read(entry: dict[str, Any], directory: str, *, is_batching: bool) -> _State:
    name, datatype = entry["input_name"], BY_CONFIG_NAME[entry["data_type"]]
    shape = [1] * is_batching + [max(1, dim) for dim in entry.get("dims") or []]
    first = wire.Tensor(name, datatype.number, shape, _zeros(datatype, shape))
    for initial in entry.get("initial_state") or []:
        shape = [1] * is_batching + list(initial.get("dims") or [])
        first = first._replace(shape=shape, data=_zeros(datatype, shape))
        if "data_file" in initial:
            with open(os.path.join(directory, _FOLDER, initial["data_file"]), "rb") as file:
                data = file.read(len(first.data)) if datatype.size else file.read()
            first = first._replace(data=data)
    is_shared = bool(entry.get("use_same_buffer_for_input_output")) and datatype.size > 0
    return _State(name, entry.get("output_name", ""), first, is_shared)


def _zeros(datatype: Datatype, shape: list[int]) -> bytes:
    """Return zeros; an empty string has four of them."""
    return bytes(count_elements(shape) * (datatype.size or 4))
