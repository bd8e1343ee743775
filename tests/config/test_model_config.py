"""Configs of models, from the text to the file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.refusals import refusal
from zmqtriton.config.errors import ConfigError
from zmqtriton.config.files import (
    ClientFile,
    check_paths,
    inherit_labels,
    read_client_file,
    read_client_files,
    read_labels,
)
from zmqtriton.config.instances import instance_specs
from zmqtriton.config.model_config import (
    load_config,
    merge_completion,
)
from zmqtriton.config.pbtxt import parse_text, to_dict, to_json
from zmqtriton_floor.errors import InternalError
from zmqtriton_protos import ModelConfig

# ------------------------------------------------------------------------ model config
# The whole way from a directory to a finished configuration, and the form that clients read.


PREPROCESSING = """
input [ { name: "image" data_type: TYPE_STRING dims: [ -1 ] } ]
output [ { name: "input_image" data_type: TYPE_FP32 dims: [ -1, 3, -1, -1 ] } ]
instance_group [ { kind: KIND_CPU } ]
parameters { key: "EXECUTION_ENV_PATH"
             value: { string_value: "$$TRITON_MODEL_DIRECTORY/python_env" } }
"""


#: What Triton 2.57 prints for the model above, key by key in its order.
PREPROCESSING_DOCUMENT = {
    "name": "preprocessing",
    "platform": "",
    "backend": "python",
    "runtime": "",
    "version_policy": {"latest": {"num_versions": 1}},
    "max_batch_size": 0,
    "input": [
        {
            "name": "image",
            "data_type": "TYPE_STRING",
            "format": "FORMAT_NONE",
            "dims": [-1],
            "is_shape_tensor": False,
            "allow_ragged_batch": False,
            "optional": False,
            "is_non_linear_format_io": False,
        }
    ],
    "output": [
        {
            "name": "input_image",
            "data_type": "TYPE_FP32",
            "dims": [-1, 3, -1, -1],
            "label_filename": "",
            "is_shape_tensor": False,
            "is_non_linear_format_io": False,
        }
    ],
    "batch_input": [],
    "batch_output": [],
    "optimization": {
        "priority": "PRIORITY_DEFAULT",
        "input_pinned_memory": {"enable": True},
        "output_pinned_memory": {"enable": True},
        "gather_kernel_buffer_threshold": 0,
        "eager_batching": False,
    },
    "instance_group": [
        {
            "name": "preprocessing_0",
            "kind": "KIND_CPU",
            "count": 1,
            "gpus": [],
            "secondary_devices": [],
            "profile": [],
            "passive": False,
            "host_policy": "",
        }
    ],
    "default_model_filename": "model.py",
    "cc_model_filenames": {},
    "metric_tags": {},
    "parameters": {"EXECUTION_ENV_PATH": {"string_value": "$$TRITON_MODEL_DIRECTORY/python_env"}},
    "model_warmup": [],
}


def make_model(root: Path, name: str, config: str | None, filename: str = "model.py") -> Path:
    directory = root / name
    (directory / "1").mkdir(parents=True)
    (directory / "1" / filename).touch()
    if config is not None:
        (directory / "config.pbtxt").write_text(config)
    return directory


def load(directory: Path, **options: Any) -> Any:
    path = directory / "config.pbtxt"
    return load_config(directory.name, directory, path if path.is_file() else None, **options)


def finished(directory: Path, **options: Any) -> Any:
    return merge_completion(load(directory), "", **options)


@pytest.mark.row("E90")
def test_a_python_model_looks_as_triton_prints_it(tmp_path: Path) -> None:
    text = to_json(finished(make_model(tmp_path, "preprocessing", PREPROCESSING)))

    assert json.dumps(PREPROCESSING_DOCUMENT, separators=(",", ":")) == text


@pytest.mark.row("E02")
def test_a_model_without_any_configuration_is_a_python_model_to_be_completed(
    tmp_path: Path,
) -> None:
    config = load(make_model(tmp_path, "m", None))

    assert ("m", "python", "model.py") == (
        config.name,
        config.backend,
        config.default_model_filename,
    )
    assert [] == list(config.input)


@pytest.mark.row("E01")
def test_without_auto_completion_the_file_must_exist_and_be_complete(tmp_path: Path) -> None:
    bare = make_model(tmp_path, "bare", None)
    no_dims = make_model(
        tmp_path, "no_dims", 'backend: "python" input { name: "A" data_type: TYPE_INT8 }'
    )

    with pytest.raises(
        ConfigError, match=r"^failed to open text file for read .*bare/config.pbtxt"
    ):
        load(bare, auto_complete=False)
    with pytest.raises(
        ConfigError, match=r"^model input 'A' must specify 'dims' for no_dims \(at "
    ):
        load(no_dims, auto_complete=False)
    assert "no_dims" == load(no_dims).name


@pytest.mark.row("E01")
def test_without_auto_completion_the_configuration_is_finished_at_once(tmp_path: Path) -> None:
    model = make_model(tmp_path, "preprocessing", PREPROCESSING)

    assert PREPROCESSING_DOCUMENT == to_dict(load(model, auto_complete=False))


@pytest.mark.row("E02")
def test_a_name_that_is_not_the_directorys_is_refused(tmp_path: Path) -> None:
    model = make_model(tmp_path, "m", 'name: "n"')

    expected = "unexpected directory name 'm' for model 'n', directory name must equal model name"
    assert f"{expected} (at {model}/config.pbtxt:1)" == refusal(ConfigError, load, model)


def test_an_override_stands_in_for_the_file_and_may_bear_another_name(tmp_path: Path) -> None:
    model = make_model(tmp_path, "m", 'name: "m" max_batch_size: 8')

    config = load(model, override='{"name": "other", "maxBatchSize": 2, "backend": "python"}')

    assert ("m", 2) == (config.name, config.max_batch_size)


@pytest.mark.row("E07", "E43")
def test_a_models_own_completion_takes_over_what_it_may_decide(tmp_path: Path) -> None:
    before = load(make_model(tmp_path, "m", "instance_group { count: 2 }"))
    reply = to_dict(before)
    reply["max_batch_size"] = 4
    reply["input"] = [{"name": "A", "data_type": "TYPE_FP32", "dims": [3]}]
    reply["output"] = [{"name": "B", "data_type": "TYPE_STRING", "dims": [-1]}]
    reply["dynamic_batching"] = {}
    reply["model_transaction_policy"] = {"decoupled": True}
    reply["name"] = "stolen"
    reply["backend"] = "other"

    after = merge_completion(before, json.dumps(reply))

    assert ("m", "python", 4) == (after.name, after.backend, after.max_batch_size)
    assert ["A"] == [tensor.name for tensor in after.input]
    assert ["B"] == [tensor.name for tensor in after.output]
    assert [4] == list(after.dynamic_batching.preferred_batch_size)
    assert after.model_transaction_policy.decoupled
    assert ["m_0_0", "m_0_1"] == [instance.name for instance in instance_specs(after)]
    assert 0 == before.max_batch_size


def test_a_completed_model_is_checked_for_the_machine(tmp_path: Path) -> None:
    model = make_model(tmp_path, "m", "instance_group { kind: KIND_GPU }")

    assert "no GPUs are available" in refusal(ConfigError, finished, model)


@pytest.mark.row("E35")
def test_a_label_file_outside_the_model_is_refused(tmp_path: Path) -> None:
    config = 'output { name: "O" data_type: TYPE_FP32 dims: 1 label_filename: "%s" }'
    outside = make_model(tmp_path, "outside", config % "../labels.txt")
    linked = make_model(tmp_path, "linked", config % "labels.txt")
    (linked / "labels.txt").symlink_to("/etc/hostname")
    inside = make_model(tmp_path, "inside", config % "labels.txt")

    for model in (outside, linked):
        with pytest.raises(ConfigError, match=r"is outside model directory$"):
            check_paths(load(model), model)
    check_paths(load(inside), inside)


def test_a_warmup_file_outside_the_warmup_directory_of_the_model_is_refused(
    tmp_path: Path,
) -> None:
    config = """model_warmup { name: "w" batch_size: 1 inputs { key: "A" value {
        data_type: TYPE_FP32 dims: 1 input_data_file: "%s" } } }"""
    model = make_model(tmp_path, "m", config % "../../../etc/passwd")

    with pytest.raises(ConfigError, match=r"is outside the directory 'warmup' of the model$"):
        check_paths(load(model), model)


@pytest.mark.row("E90")
def test_64_bit_values_are_numbers_and_floats_are_short() -> None:
    config = parse_text(
        """dynamic_batching { max_queue_delay_microseconds: 9007199254740993
             priority_queue_policy { key: 1 value { max_queue_size: 3 } } }
           model_metrics { metric_control { metric_identifier { family: "f" }
             histogram_options { buckets: 1 buckets: 0.1 } } }"""
    )
    direct = parse_text("sequence_batching { direct { minimum_slot_utilization: 0.1 } }")

    document = to_dict(config)

    assert 9007199254740993 == document["dynamic_batching"]["max_queue_delay_microseconds"]
    assert ["1"] == list(document["dynamic_batching"]["priority_queue_policy"])
    control = document["model_metrics"]["metric_control"][0]
    assert "[1, 0.1]" == str(control["histogram_options"]["buckets"])
    assert 0.1 == to_dict(direct)["sequence_batching"]["direct"]["minimum_slot_utilization"]


@pytest.mark.row("E90")
def test_of_a_oneof_only_what_is_set_is_printed_even_if_it_is_false() -> None:
    unset = parse_text('model_warmup { inputs { key: "A" value { dims: 1 } } }')
    is_set = parse_text('model_warmup { inputs { key: "A" value { zero_data: false } } }')

    assert {"data_type": "TYPE_INVALID", "dims": [1]} == to_dict(unset)["model_warmup"][0][
        "inputs"
    ]["A"]
    assert {"data_type": "TYPE_INVALID", "dims": [], "zero_data": False} == to_dict(is_set)[
        "model_warmup"
    ][0]["inputs"]["A"]


# ------------------------------------------------------------------------------- files


CHATS = ClientFile("TEMPLATE", "chat_template.jinja", "chat template")


def config_of(template: str = "") -> Any:
    config = ModelConfig(name="m")
    if template:
        config.parameters["TEMPLATE"].string_value = template
    return config


def test_a_model_has_no_template_by_default(tmp_path: Path) -> None:
    assert ("", "") == read_client_files(config_of(), tmp_path, [CHATS])


def test_a_template_has_a_usual_name_or_one_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("usual")
    (tmp_path / "own.jinja").write_text("own")

    assert ("", '{"TEMPLATE": "usual"}') == read_client_files(config_of(), tmp_path, [CHATS])
    assert ("", '{"TEMPLATE": "own"}') == read_client_files(
        config_of("own.jinja"), tmp_path, [CHATS]
    )


def test_a_server_without_chats_reads_none(tmp_path: Path) -> None:
    assert ("", "") == read_client_files(config_of("missing.jinja"), tmp_path, [])


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("missing.jinja", InternalError, "failed to open text file"),
        ("large.jinja", ConfigError, "can have at most"),
        ("binary.jinja", ConfigError, "must be UTF-8"),
        ("../outside.jinja", ConfigError, "is outside model directory"),
        ("/etc/passwd", ConfigError, "is outside model directory"),
        ("link.jinja", ConfigError, "is outside model directory"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused(
    name: str, error: type[Exception], text: str, tmp_path: Path
) -> None:
    model = tmp_path / "m"
    model.mkdir()
    (tmp_path / "outside.jinja").write_text("outside")
    (model / "large.jinja").write_bytes(b" " * ((1 << 20) + 1))
    (model / "binary.jinja").write_bytes(b"\xff")
    (model / "link.jinja").symlink_to(tmp_path / "outside.jinja")

    with pytest.raises(error, match=text):
        read_client_file(config_of(name), model, CHATS)


# ------------------------------------------------------------------- labels
def config(**files: str) -> Any:
    return SimpleNamespace(
        output=[SimpleNamespace(name=name, label_filename=file) for name, file in files.items()]
    )


def test_a_label_is_a_line(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_bytes(b"cat\n\n big dog \r\nb\xc3\xa4r\xff\n")

    labels = read_labels(config(A="labels.txt", B=""), tmp_path)

    assert {"A": ["cat", "", " big dog \r", "bär\ufffd"]} == json.loads(labels)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "labels.txt")

    with pytest.raises(InternalError, match="failed to open text file for read"):
        read_labels(config(A="labels.txt"), tmp_path)


def test_without_files_there_are_none(tmp_path: Path) -> None:
    assert "" == read_labels(config(A="", B=""), tmp_path)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    text = f"failed to open text file for read {path}: No such file or directory"
    assert text == refusal(InternalError, read_labels, config(A="labels.txt"), tmp_path)


def test_outputs_of_an_ensemble_have_its_own_labels_or_those_of_their_step() -> None:
    config = parse_text(
        """name: "e" platform: "ensemble"
        output { name: "own" } output { name: "theirs" } output { name: "none" }
        ensemble_scheduling {
          step { model_name: "a" output_map { key: "A" value: "own" }
                 output_map { key: "B" value: "theirs" } output_map { key: "C" value: "between" } }
          step { model_name: "b" output_map { key: "O" value: "none" } } }"""
    )
    members = {"a": '{"A": ["1"], "B": ["2"], "C": ["3"]}', "b": ""}

    assert '{"own": ["mine"], "theirs": ["2"]}' == inherit_labels(
        config, '{"own": ["mine"]}', members
    )
    assert "" == inherit_labels(config, "", {"a": "", "b": ""})
