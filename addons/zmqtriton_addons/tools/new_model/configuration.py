"""Writes the config.pbtxt of a new model."""

from __future__ import annotations

from collections.abc import Sequence

from zmqtriton_addons.tools.new_model.draft import Draft, Kind, TensorSpec

_UNBATCHED = """\
# Requests are executed one at a time. With `max_batch_size: 8` and `dynamic_batching { }` up to 8
# are executed together; every tensor then has the batch as its first dimension, which `dims`
# leave out.
max_batch_size: 0
"""
_BATCHED = """\
# Every tensor has the batch as its first dimension, which `dims` leave out.
max_batch_size: {size}
"""
_BATCHING = """
# Requests that wait are executed together. With a delay, the first one waits for others:
# dynamic_batching { max_queue_delay_microseconds: 500 }
dynamic_batching { }
"""
_DECOUPLED = """
# Any number of responses to each request, at any time.
model_transaction_policy { decoupled: true }
"""
_SEQUENCE = """
# Requests with the same sequence id go to the same instance, one after the other.
sequence_batching {
  # After this time without a request a sequence is over.
  max_sequence_idle_microseconds: 60000000
  # How many may be open in an instance at once; others wait for one of them to end.
  oldest { max_candidate_sequences: 1000 }
}
"""
_INSTANCES = """
# How many processes run the model.
instance_group [ { count: 1, kind: KIND_CPU } ]
"""


def config_text(draft: Draft) -> str:
    size = _BATCHED.format(size=draft.max_batch_size) if draft.is_batching else _UNBATCHED
    pieces = ['backend: "python"\n\n', size, _tensors("input", draft.inputs)]
    pieces.append(_tensors("output", draft.outputs))
    if draft.kind is Kind.SEQUENCE:
        pieces.append(_SEQUENCE)
    elif draft.is_batching:
        pieces.append(_BATCHING)
    if draft.kind is Kind.DECOUPLED:
        pieces.append(_DECOUPLED)
    return "".join([*pieces, _INSTANCES])


def _tensors(section: str, tensors: Sequence[TensorSpec]) -> str:
    rows = (
        f'  {{ name: "{tensor.name}", data_type: {tensor.datatype.config_name}, '
        f"dims: [ {', '.join(map(str, tensor.dims))} ] }}"
        for tensor in tensors
    )
    note = "" if section == "output" else "\n# A dimension of -1 may have any size."
    return f"{note}\n{section} [\n" + ",\n".join(rows) + "\n]\n"
