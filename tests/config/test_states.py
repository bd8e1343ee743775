"""Backends of models, and their states."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.refusals import refusal
from zmqtriton.config.backends import (
    complete_backend,
    find_backend_environment,
    find_model_file,
    frameworks,
)
from zmqtriton.config.errors import ConfigError
from zmqtriton.config.pbtxt import parse_text
from zmqtriton.config.states import check_states
from zmqtriton_floor.errors import InternalError, InvalidArgument
from zmqtriton_floor.reasons import Kind

# ------------------------------------------------------------------------------ states
# Initial states of sequences; texts as real Triton gives them, but for the last table.


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
    assert expected == refusal(ConfigError, _check, states, tmp_path)


@pytest.mark.row("E75")
def test_a_file_must_be_there_and_long_enough(tmp_path: Path) -> None:
    states = f"state {{ {_INT32} dims: [ 2 ] {_first(_FILE, '2')} }}"
    path = tmp_path / "initial_state" / "f"

    assert f"failed to open text file for read {path}: No such file or directory" == refusal(
        InternalError, _check, states, tmp_path
    )

    _file(tmp_path, b"1234567")
    assert (
        "initial_state setting expects 8 bytes, but the data provided from fonly has 7 bytes."
        == refusal(ConfigError, _check, states, tmp_path)
    )

    path.write_bytes(b"12345678 and more")
    _check(states, tmp_path)


def test_a_file_of_strings_holds_as_many_as_its_dimensions_say(tmp_path: Path) -> None:
    states = f"state {{ {_TEXT} dims: [ 2 ] {_first(_FILE, '2', 'TYPE_STRING')} }}"
    _file(tmp_path, b"\1\0\0\0a")

    assert "expected 2 string elements for inference input 'I' for model 'm', got 1" == refusal(
        InvalidArgument, _check, states, tmp_path
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
            "sequence batching state 'I' has 4294967296 bytes, but can have at most 1073741824",
        ),
    ],
)
def test_what_kills_triton_is_refused(states: str, expected: str, tmp_path: Path) -> None:
    assert expected == refusal(ConfigError, _check, states, tmp_path)


# ---------------------------------------------------------------------------- backends
# Which backend a directory is for, and which Python file runs it.


def make_version(model: Path, *names: str, version: str = "1") -> Path:
    directory = model / version
    directory.mkdir(parents=True)
    for name in names:
        if name.endswith("/"):
            (directory / name).mkdir()
        else:
            (directory / name).touch()
    return model


def completed(text: str, model: Path, name: str = "m") -> tuple[str, str, str]:
    config = parse_text(text)
    complete_backend(config, name, model)
    return config.backend, config.platform, config.default_model_filename


@pytest.mark.row("E03")
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["model.py"], ("python", "", "model.py")),
        (["model.py", "model.onnx"], ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
        (["model.onnx/"], ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
        (["model.pt", "model.pt2"], ("pytorch", "pytorch_libtorch", "model.pt")),
        (["model.pt2"], ("pytorch", "torch_aoti", "model.pt2")),
        (["model.plan", "model.py"], ("tensorrt", "tensorrt_plan", "model.plan")),
        (["model.xml"], ("openvino", "", "model.xml")),
        (["model.savedmodel/"], ("tensorflow", "tensorflow_savedmodel", "model.savedmodel")),
        (["model.graphdef"], ("tensorflow", "tensorflow_graphdef", "model.graphdef")),
        (["model.savedmodel", "model.py"], ("python", "", "model.py")),
    ],
)
def test_an_unconfigured_model_is_told_by_its_content(
    tmp_path: Path, names: list[str], expected: tuple[str, str, str]
) -> None:
    make_version(tmp_path, *names)

    assert expected == completed("", tmp_path)


@pytest.mark.row("E03")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('backend: "python"', ("python", "", "model.py")),
        ('backend: "python" platform: "x"', ("python", "x", "model.py")),
        ('backend: "python" default_model_filename: "a.py"', ("python", "", "a.py")),
        ('platform: "pytorch_libtorch"', ("pytorch", "pytorch_libtorch", "model.pt")),
        ('backend: "onnxruntime"', ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
        ('default_model_filename: "model.py"', ("python", "", "model.py")),
        ('default_model_filename: "other.py"', ("", "", "other.py")),
        ('backend: "custom"', ("custom", "", "")),
        ('platform: "custom"', ("", "custom", "")),
        ('platform: "ensemble"', ("", "ensemble", "")),
    ],
)
def test_the_configuration_goes_before_the_content(
    tmp_path: Path, text: str, expected: tuple[str, str, str]
) -> None:
    make_version(tmp_path, "model.onnx")

    assert expected == completed(text, tmp_path)


@pytest.mark.row("E04")
def test_only_the_first_version_counts_and_hidden_directories_do_not(tmp_path: Path) -> None:
    make_version(tmp_path, "model.onnx", version=".git")
    make_version(tmp_path, "model.py", version="1")
    make_version(tmp_path, "model.pt", version="2")

    assert "python" == completed("", tmp_path)[0]


def test_the_name_may_tell_a_custom_backend(tmp_path: Path) -> None:
    assert ("identity", "", "model.identity") == completed("", tmp_path, "m.identity")


@pytest.mark.row("E03")
def test_a_directory_that_tells_nothing_is_refused_as_in_triton(tmp_path: Path) -> None:
    make_version(tmp_path)

    assert (
        "Invalid model name: Could not determine backend for model 'temp' with no backend in model "
        "configuration. Expected model name of the form 'model.<backend_name>'."
    ) == refusal(ConfigError, completed, "", tmp_path, "temp")


def test_a_python_model_runs_its_own_file(tmp_path: Path) -> None:
    make_version(tmp_path / "m", "model.py", "other.py")

    default = find_model_file(parse_text('backend: "python"'), tmp_path / "m", 1, [])
    named = find_model_file(
        parse_text('backend: "python" default_model_filename: "other.py"'), tmp_path / "m", 1, []
    )

    assert tmp_path / "m" / "1" / "model.py" == default.file
    assert tmp_path / "m" / "1" / "other.py" == named.file


def test_a_model_file_that_is_a_loop_of_links_is_called_so(tmp_path: Path) -> None:
    make_version(tmp_path / "m")
    file = tmp_path / "m" / "1" / "model.py"
    file.symlink_to(file.name)

    with pytest.raises(ConfigError) as refused:
        find_model_file(parse_text('backend: "python"'), tmp_path / "m", 1, [])

    assert f"'{file}' is a loop of symbolic links" == str(refused.value)
    assert Kind.FILE_SPECIAL == refused.value.problem.kind


@pytest.mark.row("--backend-directory")
def test_a_backend_written_in_python_runs_the_file_of_the_backend(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    for directory in (first / "x", second / "vllm"):
        directory.mkdir(parents=True)
        (directory / "model.py").touch()

    path = find_model_file(parse_text('backend: "vllm"'), tmp_path / "m", 1, [first, second])

    assert second / "vllm" / "model.py" == path.file


@pytest.mark.row("K08", "K11", "K22")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('backend: "tensorflow"', ""),
        ('backend: "dali"', ""),
        ('backend: "implicit_state"', ""),
        ('backend: "distributed_addsub"', ""),
        ('backend: "../x"', ""),
        ('backend: "x" runtime: "libtriton_x.so"', ""),
        ('backend: "torchscript"', " Did you mean 'pytorch'?"),
        ('backend: "onnx_runtime"', " Did you mean 'onnxruntime'?"),
    ],
)
def test_an_unknown_backend_is_refused_as_in_triton(
    tmp_path: Path, text: str, expected: str
) -> None:
    backends = tmp_path / "backends"
    (backends / "x").mkdir(parents=True)
    (backends / "x" / "libtriton_x.so").touch()
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "model.py").touch()
    config = parse_text(text)

    with pytest.raises(ConfigError) as error:
        find_model_file(config, tmp_path / "m", 1, [backends])

    names = ", ".join(sorted(["python", *frameworks()]))
    where = f"This server has the backends {names}, and those in --backend-directory."
    if config.backend == "x":
        where = f"A backend is a Python file, such as {backends / 'x' / 'model.py'}."
    assert (
        f"unable to find backend library for backend '{config.backend}', "
        f"try specifying runtime on the model configuration. {where}{expected}"
    ) == error.value.text


@pytest.mark.row("K20")
def test_an_archive_beside_a_backend_is_the_environment_of_its_models(tmp_path: Path) -> None:
    backend = tmp_path / "backends" / "x"
    backend.mkdir(parents=True)
    for name in ("model.py", "other.py", "pb_exec_env_model.py.tar.gz"):
        (backend / name).touch()

    def environment_of(text: str) -> str:
        return find_backend_environment(parse_text(text), [tmp_path / "no", tmp_path / "backends"])

    assert str(backend / "pb_exec_env_model.py.tar.gz") == environment_of('backend: "x"')
    assert "" == environment_of('backend: "x" runtime: "other.py"')
    assert ("", "") == (environment_of('backend: "y"'), environment_of('backend: "python"'))
