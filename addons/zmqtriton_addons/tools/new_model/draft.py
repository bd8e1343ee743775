"""A new model as its author has described it; the other modules write its files."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from zmqtriton_addons.tools.new_model.tensors import (
    Expression,
    TensorSpec,
    compute,
    convert_total,
    placeholder,
)

#: How many responses a decoupled model sends for each request.
RESPONSES = 3


def listed(items: Sequence[str], indent: int) -> str:
    """Return the text between brackets: one item, or several in lines of their own."""
    if len(items) == 1:
        return items[0]
    inner = " " * (indent + 4)
    return "\n" + "".join(f"{inner}{item},\n" for item in items) + " " * indent


class Kind(enum.Enum):
    """The ways in which a model answers."""

    PLAIN = enum.auto()
    #: Several responses to a request, or none.
    DECOUPLED = enum.auto()
    #: By asking another model.
    BLS = enum.auto()
    #: With what it remembers of a sequence of requests.
    SEQUENCE = enum.auto()
    #: With pieces of a text; its tensors are those of chats.
    CHAT = enum.auto()


class Draft(NamedTuple):
    """The facts that the files of a model depend on."""

    name: str
    kind: Kind
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    max_batch_size: int = 0
    #: The model that it calls.
    callee: str = ""
    #: It has a route of its own.
    has_route: bool = False

    @property
    def is_batching(self) -> bool:
        return self.max_batch_size > 0

    def source(self, index: int) -> TensorSpec:
        """Return the input that an output is made of."""
        if self.kind is Kind.SEQUENCE:
            return self.inputs[0]
        return self.inputs[min(index, len(self.inputs) - 1)]

    def expressions(self) -> list[Expression]:
        """Return code for each output, in their order."""
        factor = "step" if self.kind is Kind.DECOUPLED else "2"
        expressions = []
        for index, output in enumerate(self.outputs):
            source = self.source(index)
            if self.kind is Kind.SEQUENCE:
                expression = convert_total(output, source)
            else:
                expression = compute(output, source, factor)
            expressions.append(
                expression or placeholder(output, source, is_batching=self.is_batching)
            )
        return expressions

    def examples(self, tensors: Sequence[TensorSpec], indent: int = 0) -> str:
        """Return Python code for a dict of arrays, in a line that is indented so far."""
        arrays = [
            f'"{tensor.name}": {tensor.example(is_batching=self.is_batching)}' for tensor in tensors
        ]
        return f"{{{listed(arrays, indent)}}}"
