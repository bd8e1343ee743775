"""The check of a request against its model: names, datatypes, shapes, batch, bytes.

Frontends check what clients send; the receiving stub checks what other models send, and the broker
what they send to ensembles. No size is trusted. Raises InvalidArgument with Triton's texts.
"""

from __future__ import annotations

import hashlib
import operator
import struct
import sys
from typing import Any, Callable, Collection, Mapping, Sequence

from zmqtriton_floor.datatypes import BY_CONFIG_NAME, BY_NUMBER, BYTES, count_elements
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.process.named_tuples import NamedTuple
from zmqtriton_floor.settings.offers import Hook
from zmqtriton_floor.wire import Reference, RequestBody, Tensor, make

#: Gets a model's configuration and the name of a text input, and returns an example of the JSON
#: that the model reads there, or "". The web page and `zmqtriton run` show it.
EXAMPLE = Hook[Callable[[Mapping[str, Any], str], str]]("models.example")

_BATCH_NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be "
    "prepended to each input shape. If you want to specify the full shape including the batch dim "
    "in your input dims config, try setting max_batch_size to zero. See the model configuration "
    "docs for more info on max_batch_size."
)

_LENGTH = struct.Struct("<I")
_name_of = operator.attrgetter("name")
#: Data that are here, and not where a reference or a frontend's region says.
READABLE = (bytes, bytearray, memoryview)
#: Counts the elements of a BYTES tensor for a model. Raises InvalidArgument.
Count = Callable[[Tensor, str], None]


class Input(NamedTuple):
    """One input of a configuration."""

    name: str
    datatype: int
    #: Sizes of the dimensions, -1 for any. The first is -1 if the model batches.
    dims: tuple[int, ...]
    optional: bool
    #: Bytes of one batch element if all dimensions are fixed, else None.
    fixed_size: int | None


class Admission(NamedTuple):
    """The facts about a request that fits, as the broker needs them."""

    batch_size: int
    batch_key: int


def _list(dims: Sequence[int]) -> str:
    return "[" + ",".join(map(str, dims)) + "]"


def config_parameter(config: Mapping[str, Any], name: str) -> str:
    """Return the text of a parameter in a model's JSON configuration; "" if it is not set."""
    parameters = config.get("parameters") or {}
    return str((parameters.get(name) or {}).get("string_value", ""))


def sees_own_gpu(value: str) -> bool:
    """Return whether CUDA_VISIBLE_DEVICES of a model means own GPUs for instances, or slices."""
    return value == "instance" or value.startswith("MIG-")


def splits_batches(config: Mapping[str, Any]) -> bool:
    """True if requests above max_batch_size are executed in parts."""
    if config_parameter(config, "SPLIT_BATCHES") != "true" or "sequence_batching" in config:
        return False
    policy = config.get("model_transaction_policy") or {}
    is_ragged = any(entry.get("allow_ragged_batch") for entry in config.get("input", []))
    return not (policy.get("decoupled") or is_ragged or "ensemble_scheduling" in config)


def takes_gpu(config: dict[str, Any]) -> bool:
    """True if inputs of this model may be on a GPU."""
    return config_parameter(config, "FORCE_CPU_ONLY_INPUT_TENSORS") == "no"


class Signature:
    """The inputs and outputs of one model, from its JSON configuration, ready for checks."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.model: str = config["name"]
        self.max_batch_size: int = config.get("max_batch_size", 0)
        self.splits_batches = splits_batches(config)
        self._most_rows = sys.maxsize if self.splits_batches else self.max_batch_size
        policy = config.get("model_transaction_policy") or {}
        self.is_decoupled: bool = bool(policy.get("decoupled", False))
        self.inputs: dict[str, Input] = {
            entry["name"]: self._input(entry) for entry in config.get("input", [])
        }
        self.outputs: dict[str, int] = {
            entry["name"]: BY_CONFIG_NAME[entry["data_type"]].number
            for entry in config.get("output", [])
        }
        self._required = sum(not i.optional for i in self.inputs.values())
        #: Inputs with allow_ragged_batch: requests share a batch although their shapes differ.
        self._ragged = frozenset(
            entry["name"] for entry in config.get("input", []) if entry.get("allow_ragged_batch")
        )
        #: All valid requests may share a batch.
        self.has_constant_key = all(
            (i.fixed_size is not None or i.name in self._ragged) and not i.optional
            for i in self.inputs.values()
        )
        is_batching = "dynamic_batching" in config or "sequence_batching" in config
        #: Requests need keys that say which of them may share a batch.
        self._has_keys = is_batching and not self.has_constant_key

    def _input(self, entry: dict[str, Any]) -> Input:
        datatype = BY_CONFIG_NAME[entry["data_type"]]
        dims = tuple(entry["dims"])
        fixed = None if datatype.size == 0 or -1 in dims else count_elements(dims) * datatype.size
        full = (-1, *dims) if self.max_batch_size else dims
        return Input(
            entry["name"], datatype.number, full, bool(entry.get("optional", False)), fixed
        )

    def check(self, body: RequestBody, count: Count | None = None) -> Admission:
        """Check a request; `count` counts a BYTES tensor's elements, by default check_elements().

        Raises InvalidArgument that names the wrong part, and the errors of `count`.
        """
        try:
            for name in body.outputs:
                if name not in self.outputs:
                    raise InvalidArgument(
                        f"unexpected inference output '{name}' for model '{self.model}'"
                    )
            inputs = body.inputs
            names = set(map(_name_of, inputs))
            if len(inputs) != len(self.inputs) or names != self.inputs.keys():
                self._check_names(inputs, names)
            batch_size = self._batch_size(inputs) if self.max_batch_size else 0
            # the last one first, as they come out of Triton's hash table: of several wrong ones
            # the same is named
            for tensor in reversed(inputs):
                self._check_tensor(tensor, self.inputs[tensor.name], count or check_elements)
        except InvalidArgument as error:
            request_id = body.request_id or "<id_unknown>"
            raise InvalidArgument(f"[request id: {request_id}] {error.text}") from None
        return make(Admission, (batch_size, self._key(inputs) if self._has_keys else 0))

    def admit(self, inputs: Sequence[Tensor]) -> Admission:
        """Return the admission of a request that its receiver checks; looks at no data."""
        is_batch = self.max_batch_size and inputs and inputs[0].shape
        key = self._key(inputs) if self._has_keys else 0
        return make(Admission, (inputs[0].shape[0] if is_batch else 0, key))

    def find_missing(self, inputs: Sequence[Tensor]) -> list[str]:
        """Return the names of the inputs that a request needs and that are missing here."""
        names = set(map(_name_of, inputs))
        return [i.name for i in self.inputs.values() if not i.optional and i.name not in names]

    def rank(self, name: str) -> int:
        """Return the number of an input's dimensions, the batch included; 0 for an unknown one."""
        declaration = self.inputs.get(name)
        return len(declaration.dims) if declaration else 0

    def _check_names(self, inputs: list[Tensor], seen: set[str]) -> None:
        """Check inputs whose names are not exactly the model's, each once."""
        if len(seen) < len(inputs):
            # first of all, as in Triton: a name given twice is not one input too many
            names = [tensor.name for tensor in inputs]
            twin = next(name for index, name in enumerate(names) if name in names[:index])
            raise InvalidArgument(f"input '{twin}' already exists in request")
        if not self._required <= len(inputs) <= len(self.inputs):
            self._refuse_count(inputs)
        if not seen <= self.inputs.keys():
            name = next(t.name for t in reversed(inputs) if t.name not in self.inputs)
            allowed = ", ".join(sorted(self.inputs))
            raise InvalidArgument(
                f"unexpected inference input '{name}' for model '{self.model}', "
                f"allowed inputs are: {allowed}"
            )
        if len(inputs) < len(self.inputs) and self.find_missing(inputs):
            self._refuse_count(inputs)

    def _batch_size(self, inputs: list[Tensor]) -> int:
        size = None
        for tensor in reversed(inputs):
            if not tensor.shape:
                raise InvalidArgument(
                    f"input '{tensor.name}' has no shape but model requires batch dimension for "
                    f"'{self.model}'"
                )
            if size is None:
                size = tensor.shape[0]
            elif tensor.shape[0] != size:
                raise InvalidArgument(
                    f"input '{tensor.name}' batch size does not match other inputs for "
                    f"'{self.model}'"
                )
        if size and size > self._most_rows:
            raise InvalidArgument(
                f"inference request batch-size must be <= {self.max_batch_size} for '{self.model}'"
            )
        return max(0, size or 0)  # a negative one fits no shape, as _check_tensor says

    def _check_tensor(self, tensor: Tensor, declaration: Input, count: Count) -> None:
        if tensor.datatype != declaration.datatype:
            datatype = BY_NUMBER.get(tensor.datatype)
            raise InvalidArgument(
                f"inference input '{tensor.name}' data-type is "
                f"'{datatype.name if datatype else '<invalid>'}', but model '{self.model}' expects "
                f"'{BY_NUMBER[declaration.datatype].name}'"
            )
        shape, dims = tensor.shape, declaration.dims
        fits = has_dims = len(shape) == len(dims)
        for dim, size in zip(dims, shape):
            if size < 0 or (dim != size and dim != -1):
                fits = False
        if not fits:
            note = _BATCH_NOTE if self.max_batch_size and not has_dims else ""
            raise InvalidArgument(
                f"unexpected shape for input '{tensor.name}' for model '{self.model}'. Expected "
                f"{_list(dims)}, got {_list(shape)}. {note}"
            )
        data = tensor.data
        if declaration.datatype == BYTES:
            if type(data) in READABLE:  # whoever maps the others looks into the strings
                count(tensor, self.model)
            return
        if declaration.fixed_size is not None:
            size = declaration.fixed_size * (shape[0] if self.max_batch_size else 1)
        else:
            size = count_elements(shape) * BY_NUMBER[declaration.datatype].size
        data_bytes = data.size if type(data) is Reference else len(data)
        if data_bytes != size:
            raise InvalidArgument(
                f"input byte size mismatch for input '{tensor.name}' for model '{self.model}'. "
                f"Expected {size}, got {data_bytes}"
            )

    def _refuse_count(self, inputs: list[Tensor]) -> None:
        names = [tensor.name for tensor in reversed(inputs)]
        total, required = len(self.inputs), self._required
        expected = (
            f"expected {total} inputs but got {len(names)} inputs"
            if required == total
            else f"expected number of inputs between {required} and {total} "
            f"but got {len(names)} inputs"
        )
        tail = ""
        if missing := self.find_missing(inputs):
            got, needed = (",".join(f"'{one}'" for one in each) for each in (names, missing))
            tail = (
                f" Got input(s) [{got}], but missing required input(s) [{needed}]. "
                "Please provide all required input(s)."
            )
        raise InvalidArgument(f"{expected} for model '{self.model}'.{tail}")

    def _key(self, tensors: Sequence[Tensor]) -> int:
        return batch_key(tensors, 1 if self.max_batch_size else 0, self._ragged)


def batch_key(tensors: Sequence[Tensor], start: int, ragged: Collection[str] = frozenset()) -> int:
    """Return a key that is equal for requests that may share a batch.

    Their tensors differ in nothing but their first `start` dimensions, or in any of the ragged
    ones.
    """
    shapes = sorted(
        (t.name, t.datatype, [] if t.name in ragged else t.shape[start:]) for t in tensors
    )
    digest = hashlib.blake2b(repr(shapes).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def check_elements(tensor: Tensor, model: str) -> None:
    """Raise InvalidArgument unless a BYTES tensor holds as many elements as its shape says."""
    expected, data = count_elements(tensor.shape), tensor.data
    position, end, count = 0, len(data), 0
    where = f"for inference input '{tensor.name}' for model '{model}'"
    while position < end:
        if count == expected:
            raise InvalidArgument(
                f"unexpected number of string elements {count + 1} {where}, expecting {expected}"
            )
        if position + 4 > end:
            raise InvalidArgument(
                f"incomplete string length indicator {where}, expecting 4 bytes but only "
                f"{end - position} bytes available. Please make sure the string length indicator "
                "is in one buffer."
            )
        (length,) = _LENGTH.unpack_from(data, position)
        position += 4
        if position + length > end:
            raise InvalidArgument(
                f"incomplete string data {where}, expecting string of length {length} but only "
                f"{end - position} bytes available."
            )
        position += length
        count += 1
    if count != expected:
        raise InvalidArgument(f"expected {expected} string elements {where}, got {count}")
