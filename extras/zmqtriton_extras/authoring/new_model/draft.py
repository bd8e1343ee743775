"""A new model as its author has described it: its inputs and outputs, with example values.

NAME:TYPE[:DIMS] X:FP32:-1 IMAGE:UINT8:3,224,224 TEXT:STRING

The other modules write the files of a `Draft`.
"""

from __future__ import annotations

import enum
import keyword
import math
from collections.abc import Sequence
from typing import NamedTuple

from zmqtriton.sdk.wire import datatypes, errors

#: The type of strings has two names.
_STRING = "STRING"
#: Types that models can compute with, by numpy.
TYPES = {row.name: row for row in datatypes.BY_NAME.values() if row.numpy_name}
_TYPE_NAMES = (*TYPES, _STRING)
#: An example's size for a dimension that may be any.
_ANY_SIZE = 3
#: Names that the code uses itself, and builtins that a tensor is likely to be called by.
_TAKEN = frozenset(
    (
        "args",
        "begin",
        "end",
        "flags",
        "joined",
        "np",
        "pb_utils",
        "request",
        "requests",
        "responses",
        "sender",
        "sequence",
        "step",
        "self",
        "total",
        "bytes",
        "float",
        "input",
        "int",
        "len",
        "max",
        "min",
        "range",
        "str",
        "sum",
        "type",
    )
)

_BOOL = datatypes.BY_NAME["BOOL"]
#: Number of responses that a decoupled draft sends for each request.
RESPONSES = 3


class TensorSpec(NamedTuple):
    """An input or output, as a word of the command line describes it."""

    name: str
    datatype: datatypes.Datatype
    #: Without that of a batch; -1 is any size.
    dims: tuple[int, ...]
    #: An element of the example, if it is a text.
    text: str = "hello"

    @property
    def variable(self) -> str:
        """The name of the tensor's array in the code."""
        name = self.name.lower()
        return f"{name}_" if keyword.iskeyword(name) or name in _TAKEN else name

    @property
    def is_text(self) -> bool:
        return self.datatype.number == datatypes.BYTES

    @property
    def numpy_type(self) -> str:
        return f"np.{self.datatype.numpy_name}"

    def shape(self, *, is_batching: bool) -> list[int]:
        """Return the shape of an example; a batch has one element."""
        sizes = [_ANY_SIZE if dim == -1 else dim for dim in self.dims]
        return [1, *sizes] if is_batching else sizes

    def example(self, *, is_batching: bool) -> str:
        """Return Python code for an array: ones, or words."""
        shape = self.shape(is_batching=is_batching)
        if self.is_text:
            return f'np.full({shape}, b"hello", np.object_)'
        return f"np.ones({shape}, {self.numpy_type})"

    def example_size(self) -> int:
        """Return the number of elements of an example."""
        return math.prod(self.shape(is_batching=False))

    def example_data(self) -> list[object]:
        """Return the elements of an example without a batch as a flat list, for JSON."""
        one: object = self.text if self.is_text else True if self.datatype == _BOOL else 1
        return [one] * self.example_size()


class Expression(NamedTuple):
    """Python code for an output, and the expected value of its elements for the examples."""

    code: str
    expected: str


def read_tensor(text: str) -> TensorSpec:
    """Return the tensor that a word of the command line describes. Raises ValueError."""
    name, _, rest = text.partition(":")
    type_name, _, dims = rest.partition(":")
    if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name):
        raise ValueError(
            f"'{text}': a name has letters, digits and _, begins with no digit and is no word of "
            "Python; the form is NAME:TYPE[:DIMS], such as X:FP32:-1"
        )
    return TensorSpec(name, _read_type(text, type_name), _read_dims(text, dims or "-1"))


def _read_type(text: str, name: str) -> datatypes.Datatype:
    type_name = name.upper().removeprefix("TYPE_")
    type_name = datatypes.BY_NAME["BYTES"].name if type_name == _STRING else type_name
    if type_name not in TYPES:
        meant = errors.closest_match(type_name, _TYPE_NAMES)
        hint = f" Did you mean '{meant}'?" if meant else ""
        raise ValueError(f"'{text}': the type is one of {', '.join(_TYPE_NAMES)}.{hint}")
    return TYPES[type_name]


def _read_dims(text: str, dims: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(size) for size in dims.split(","))
    except ValueError:
        sizes = (0,)
    if any(size != -1 and size < 1 for size in sizes):
        raise ValueError(
            f"'{text}': dimensions must be sizes with commas between them, such as 3,224,224, "
            "and -1 is any size"
        )
    return sizes


def compute(output: TensorSpec, source: TensorSpec, factor: str) -> Expression | None:
    """Return a computation of `output` from `source`, for the user to replace.

    None if the two differ in their shape, or only one is text.
    """
    variable = source.variable
    if output.dims != source.dims or output.is_text != source.is_text:
        return None
    if output.is_text:
        code = f"np.char.upper({variable}.astype(np.bytes_)).astype(np.object_)"
        return Expression(code, 'b"HELLO"')
    if output.datatype != source.datatype:
        return Expression(f"{variable}.astype({output.numpy_type})", "1")
    if output.datatype == _BOOL:
        return Expression(f"~{variable}", "0")
    return Expression(f"{variable} * {factor}", factor)


def convert_total(output: TensorSpec, source: TensorSpec) -> Expression | None:
    """Return code for a sequence's total as an output, with the expected total of two examples."""
    if output.dims != source.dims or output.is_text != source.is_text:
        return None
    if output.is_text:
        return Expression("total", 'b"hellohello"')
    expected = "1" if _BOOL in (source.datatype, output.datatype) else "2"
    if output.datatype == source.datatype:
        return Expression("total", expected)
    return Expression(f"total.astype({output.numpy_type})", expected)


def placeholder(output: TensorSpec, source: TensorSpec, *, is_batching: bool) -> Expression:
    """Return code for an array of the right type and shape, with the same batch size."""
    sizes = [str(1 if dim == -1 else dim) for dim in output.dims]
    shape = ", ".join([f"len({source.variable})", *sizes] if is_batching else sizes)
    if output.is_text:
        return Expression(f'np.full([{shape}], b"", np.object_)', 'b""')
    return Expression(f"np.zeros([{shape}], {output.numpy_type})", "0")


def listed(items: Sequence[str], indent: int) -> str:
    """Return the content of brackets: one item, or several on a line each."""
    if len(items) == 1:
        return items[0]
    inner = " " * (indent + 4)
    return "\n" + "".join(f"{inner}{item},\n" for item in items) + " " * indent


class Kind(enum.Enum):
    """The kinds of drafts, by the way that the model answers."""

    PLAIN = enum.auto()
    #: Several responses to a request, or none.
    DECOUPLED = enum.auto()
    #: A response that is made by calling another model.
    BLS = enum.auto()
    #: A response that depends on earlier requests of the sequence.
    SEQUENCE = enum.auto()
    #: Pieces of a text as a stream; the tensors are those of chat models.
    CHAT = enum.auto()


class Draft(NamedTuple):
    """The facts about a model that its files depend on."""

    name: str
    kind: Kind
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    max_batch_size: int = 0
    #: The model that it calls.
    callee: str = ""

    @property
    def is_batching(self) -> bool:
        return self.max_batch_size > 0

    def source(self, index: int) -> TensorSpec:
        """Return the input that an output is computed from."""
        if self.kind is Kind.SEQUENCE:
            return self.inputs[0]
        return self.inputs[min(index, len(self.inputs) - 1)]

    def expressions(self) -> list[Expression]:
        """Return code for each output, in the order of outputs."""
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
        """Return Python code for a dict of example arrays, in a line with this indentation."""
        arrays = [
            f'"{tensor.name}": {tensor.example(is_batching=self.is_batching)}' for tensor in tensors
        ]
        return f"{{{listed(arrays, indent)}}}"
