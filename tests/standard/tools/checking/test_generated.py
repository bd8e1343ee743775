"""The check of generated configurations has errors exactly where their load fails."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from zmqtriton.config import ModelHost, backend_places, load_config, merge_completion
from zmqtriton.config.model_config import check_runnable
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_standard.tools.checking.models import CheckOptions, check_model

_MODEL = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"
#: In the place of each field of a tensor, right and wrong ones.
_TENSOR = (
    ('name: "T"', 'name: "T"', 'name: "T"', 'name: ""'),
    ("data_type: TYPE_FP32", "data_type: TYPE_FP32", "data_type: TYPE_STRING", ""),
    ("dims: [ 1 ]", "dims: [ 2, 3 ]", "dims: [ -1 ]", "dims: [ 0 ]", ""),
    ("", "", "reshape { shape: [ ] }", "reshape { shape: [ 6 ] }", "reshape { shape: [ -1 ] }"),
    ("", "", "format: FORMAT_NCHW", "is_shape_tensor: true"),
)
_REST = (
    ("", "max_batch_size: 4", "max_batch_size: -1"),
    ("", "dynamic_batching { }", "dynamic_batching { preferred_batch_size: [ 9 ] }"),
    ("", "instance_group [ { count: 2 kind: KIND_CPU } ]", "instance_group [ { count: -1 } ]"),
    ("", "version_policy { specific { versions: [ 1 ] } }", "optimization { priority: 7 }"),
    ("", 'parameters { key: "max_load_seconds" value { string_value: "no" } }'),
)


def _config(backend: str, draw: random.Random) -> str:
    def tensor(name: str) -> str:
        fields = " ".join(draw.choice(choices) for choices in _TENSOR)
        return fields.replace('"T"', f'"{name}"')

    rest = "\n".join(draw.choice(choices) for choices in _REST)
    tensors = f"input [ {{ {tensor('A')} }} ]\noutput [ {{ {tensor('B')} }} ]"
    return f'backend: "{backend}"\n{tensors}\n{rest}\n'


@pytest.mark.parametrize("backend", ["python", "openvino"])
@pytest.mark.parametrize("seed", range(1))
@pytest.mark.extra("backends")
def test_a_generated_configuration_is_wrong_for_both_or_for_none(
    tmp_path: Path, backend: str, seed: int
) -> None:
    draw, host = random.Random(seed), ModelHost()
    rules = CheckOptions(host=host, backend_places=backend_places())
    wrong = []
    for number in range(60):
        directory = tmp_path / f"m{number}"
        (directory / "1").mkdir(parents=True)
        (directory / "1" / "model.py").write_text(_MODEL)
        path = directory / "config.pbtxt"
        path.write_text(_config(backend, draw))

        load_error = ""
        try:
            config = load_config(directory.name, directory, path, host=host)
            merged = merge_completion(config, "", host=host, path=path)
            check_runnable(merged, host, path)
        except ZmqTritonError as error:
            load_error = error.text
        problems = check_model(directory, rules).errors
        # the file of the framework is missing, and its parameters are read later
        texts = [one.text for one in problems if "max_load_seconds" not in one.text]
        texts = [text for text in texts if "model.xml" not in text]
        if bool(load_error) != bool(texts):
            wrong.append(f"{path.read_text()}: {load_error or 'loads'} but {texts}")
    assert [] == wrong
