"""Initial states of sequences; texts as real Triton gives them, but for the last table."""

from __future__ import annotations

from pathlib import Path

import pytest

from zmqtriton.config.errors import ConfigError
from zmqtriton.config.pbtxt import parse_text
from zmqtriton.config.states import check_states
from zmqtriton_floor.errors import InternalError, InvalidArgument

_INT32 = 'input_name: "I" output_name: "O" data_type: TYPE_INT32 '
_FILE = 'data_file: "f"'
_TEXT = _INT32.replace("INT32", "STRING")


def _check(states: str, directory: Path) -> None:
    config = parse_text(f'name: "m" max_batch_size: 4 sequence_batching {{ {states} }}')
    check_states(config, directory)


def _first(fields: str, dims: str = "1", data_type: str = "TYPE_INT32") -> str:
    return f"initial_state {{ name: 'n' data_type: {data_type} dims: [ {dims} ] {fields} }}"


def _file(directory: Path, data: bytes) -> None:
    (directory / "initial_state").mkdir()
    (directory / "initial_state" / "f").write_bytes(data)


_ZERO = _first("zero_data: true")


@pytest.mark.row("E75")
@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (
            f"state {{ {_INT32} dims: [ 1 ] {_ZERO} {_ZERO} }}",
            "initial_state field for state input 'I' must contain exactly one or zero element. "
            "Found '2' elements.",
        ),
        (
            f"state {{ {_INT32} dims: [ 1 ] {_first('zero_data: true', '1', 'TYPE_FP32')} }}",
            "The data type used for 'initial_state' field of state 'I' does not match the state "
            "data type.",
        ),
        (
            f"state {{ {_INT32} dims: [ 1 ] initial_state {{ data_type: TYPE_INT32 }} }}",
            "Field 'name' must be set when using initial_state for state input 'I'.",
        ),
        (
            f"state {{ {_INT32} dims: [ 1 ] {_ZERO} }} state {{ {_INT32} dims: [ 1 ] {_ZERO} }}",
            "State input name 'I' specified more than once.",
        ),
        (
            f"state {{ {_INT32} dims: [ 1, 1 ] {_ZERO} }}",
            "Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions "
            "for state input 'I'. 1 != 2",
        ),
        (
            f"state {{ {_INT32} dims: [ -1 ] {_first('zero_data: true', '-1')} }}",
            "'initial_state' field for state input name 'I' contains variable dimensions.",
        ),
        (
            f"state {{ {_INT32} dims: [ 2 ] {_ZERO} }}",
            "'initial_state' dim for input name 'I' doesn't match 'state' dim description. 1 != 2",
        ),
        (
            f"state {{ {_INT32} dims: [ 1 ] {_first('')} }}",
            "initial_state setting expects state'I' to have state_data set",
        ),
    ],
)
def test_a_state_that_begins_wrongly_is_refused(states: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        _check(states, tmp_path)

    assert expected == error.value.text


@pytest.mark.row("E75")
def test_a_file_must_be_there_and_long_enough(tmp_path: Path) -> None:
    states = f"state {{ {_INT32} dims: [ 2 ] {_first(_FILE, '2')} }}"
    path = tmp_path / "initial_state" / "f"

    with pytest.raises(InternalError) as missing:
        _check(states, tmp_path)
    assert (
        f"failed to open text file for read {path}: No such file or directory" == missing.value.text
    )

    _file(tmp_path, b"1234567")
    with pytest.raises(ConfigError) as short:
        _check(states, tmp_path)
    assert (
        "initial_state setting expects 8 bytes, but the data provided from fonly has 7 bytes."
        == short.value.text
    )

    path.write_bytes(b"12345678 and more")
    _check(states, tmp_path)


def test_a_file_of_strings_holds_as_many_as_its_dimensions_say(tmp_path: Path) -> None:
    states = f"state {{ {_TEXT} dims: [ 2 ] {_first(_FILE, '2', 'TYPE_STRING')} }}"
    _file(tmp_path, b"\1\0\0\0a")

    with pytest.raises(InvalidArgument) as error:
        _check(states, tmp_path)

    assert (
        "expected 2 string elements for inference input 'I' for model 'm', got 1"
        == error.value.text
    )


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (
            "state { data_type: TYPE_INT32 }",
            "sequence batching state must specify 'input_name' for m",
        ),
        (
            "state { input_name: 'I' dims: [ 1 ] }",
            "sequence batching state 'I' must specify 'data_type' for m",
        ),
        (
            f"state {{ {_INT32} dims: [ 0 ] }}",
            "sequence batching state 'I' dimension must be integer >= 1, or -1 to indicate a "
            "variable-size dimension for m",
        ),
        (
            f"state {{ {_INT32} dims: [ 1073741824 ] }}",
            "sequence batching state 'I' of 4294967296 bytes exceeds the limit of 1073741824",
        ),
    ],
)
def test_what_kills_triton_is_refused(states: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        _check(states, tmp_path)

    assert expected == error.value.text


def test_states_of_all_kinds_are_accepted(tmp_path: Path) -> None:
    _check(f"state {{ {_INT32} dims: [ -1 ] {_first('zero_data: true', '3')} }}", tmp_path)
    _check(f"state {{ {_TEXT} dims: [] }}", tmp_path)
    _check(f"state {{ {_INT32} dims: [ 1 ] use_growable_memory: true }}", tmp_path)
