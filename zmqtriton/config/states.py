"""Refuses implicit states of sequences whose initial value does not fit the model.

Needs the model's directory, since an initial value may be in a file there. The texts are Triton's,
except for what makes Triton crash.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import zmqtriton_protos
from zmqtriton.config.errors import ConfigError, Problem, raise_first, rule_problems
from zmqtriton.config.files import open_regular_file
from zmqtriton_floor.datatypes import BY_CONFIG_NAME, BYTES, Datatype
from zmqtriton_floor.errors import InternalError, ZmqTritonError
from zmqtriton_floor.signature import check_elements
from zmqtriton_floor.wire import Tensor

#: The folder of the files, below the model's directory.
INITIAL_STATE_FOLDER = "initial_state"
#: Maximum size of an initial state; each sequence begins with a copy of it.
_MAX_BYTES = 1 << 30

_DATATYPES = {
    number: BY_CONFIG_NAME.get(entry.name)
    for number, entry in zmqtriton_protos.enum("inference.DataType").values_by_number.items()
}


def check_states(config: Any, model_dir: Path) -> None:
    """Raise ConfigError for the first problem, InternalError for a file that cannot be read."""
    raise_first(state_problems(config, model_dir))


def state_problems(config: Any, model_dir: Path) -> Iterator[Problem]:
    """Return the first problem of each state.

    `files` checks where the files are.
    """
    begun: set[str] = set()
    for index, state in enumerate(config.sequence_batching.state):
        try:
            _check_state_and_initial(state, begun, config, model_dir)
        except ZmqTritonError as error:
            field = ("sequence_batching", "state", index)
            yield Problem(error.text, field, error_number=error.number)


def _check_state_and_initial(state: Any, begun: set[str], config: Any, model_dir: Path) -> None:
    datatype = _check_state(state, config)
    if len(state.initial_state) > 1:
        raise ConfigError(
            f"initial_state field for state input '{state.input_name}' must contain exactly "
            f"one or zero element. Found '{len(state.initial_state)}' elements."
        )
    for initial in state.initial_state:
        raise_first(_initial_problems(initial, state))
        if state.input_name in begun:
            raise ConfigError(f"State input name '{state.input_name}' specified more than once.")
        begun.add(state.input_name)
        _check_initial_data(initial, state.input_name, datatype, config.name, model_dir)


def _check_state(state: Any, config: Any) -> Datatype:
    if not state.input_name:
        raise ConfigError(f"sequence batching state must specify 'input_name' for {config.name}")
    where = f"sequence batching state '{state.input_name}'"
    datatype = _DATATYPES.get(state.data_type)
    if datatype is None:
        raise ConfigError(f"{where} must specify 'data_type' for {config.name}")
    if any(dim < 1 and dim != -1 for dim in state.dims):
        raise ConfigError(
            f"{where} dimension must be integer >= 1, or -1 to indicate a variable-size dimension "
            f"for {config.name}"
        )
    _check_size(max(1, datatype.size) * prod(dim for dim in state.dims if dim > 0), where)
    return datatype


def _check_size(size: int, where: str) -> None:
    if size > _MAX_BYTES:
        raise ConfigError(f"{where} has {size} bytes, but can have at most {_MAX_BYTES}")


def _initial_problems(initial: Any, state: Any) -> Iterator[Problem]:
    """Return the problems of an initial state, except those of its data."""
    name, dims = state.input_name, state.dims
    yield from rule_problems(
        (
            initial.data_type != state.data_type,
            f"The data type used for 'initial_state' field of state '{name}' does not match the "
            "state data type.",
            (),
        ),
        (
            not initial.name,
            f"Field 'name' must be set when using initial_state for state input '{name}'.",
            (),
        ),
        (
            len(initial.dims) != len(dims),
            "Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions "
            f"for state input '{name}'. {len(initial.dims)} != {len(dims)}",
            (),
        ),
    )
    for dim, allowed in zip(initial.dims, dims, strict=True):
        yield from rule_problems(
            (
                dim < 0,
                f"'initial_state' field for state input name '{name}' contains variable "
                "dimensions.",
                (),
            ),
            (
                allowed not in (-1, dim),
                f"'initial_state' dim for input name '{name}' doesn't match 'state' dim "
                f"description. {dim} != {allowed}",
                (),
            ),
        )


def _check_initial_data(
    initial: Any, name: str, datatype: Datatype, model: str, model_dir: Path
) -> None:
    kind = initial.WhichOneof("state_data")
    if kind is None:
        raise ConfigError(f"initial_state setting expects state'{name}' to have state_data set")
    size = max(1, datatype.size) * prod(initial.dims)
    _check_size(size, f"initial_state of state input '{name}'")
    if kind != "data_file":
        return
    path = model_dir / INITIAL_STATE_FOLDER / initial.data_file
    try:
        with open_regular_file(path) as file:
            file_bytes = os.fstat(file.fileno()).st_size
            _check_size(file_bytes, f"initial_state of state input '{name}'")
            data = file.read() if datatype.number == BYTES else b""
    except OSError as error:
        raise InternalError(
            f"failed to open text file for read {path}: {os.strerror(error.errno or 0)}"
        ) from None
    if datatype.number == BYTES:
        check_elements(Tensor(name, BYTES, list(initial.dims), data), model)
    elif file_bytes < size:
        # the missing space is Triton's
        raise ConfigError(
            f"initial_state setting expects {size} bytes, but the data provided from "
            f"{initial.data_file}only has {file_bytes} bytes."
        )
