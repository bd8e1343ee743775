"""The models that the guides print answer as the guides say."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import ROOT
from zmqtriton.main import main
from zmqtriton.testing import InferenceRequest, load_model

GUIDES = ROOT / "docs" / "guides"


def printed_model(guide: str, directory: Path) -> Path:
    """Write the first model that a guide prints, and return its directory."""
    text = (GUIDES / guide).read_text("utf-8")
    codes = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    [code, *_] = [code for code in codes if "class TritonPythonModel" in code]
    config = re.search(r'((?:^    .*\n)*    backend: "python"\n(?:    .*\n)+)', text, re.MULTILINE)
    assert config is not None
    version = directory / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(code)
    (directory / "config.pbtxt").write_text(re.sub("^    ", "", config[1], flags=re.MULTILINE))
    return directory


def test_tokens_are_streamed(tmp_path: Path) -> None:
    with load_model(printed_model("streaming.md", tmp_path / "llm")) as model:
        responses = list(model.stream(text_input=["one two three"], max_tokens=[4]))

    assert [b"one ", b"two ", b"three ", b"one "] == [r["text_output"][0] for r in responses]


def test_a_state_is_kept_for_each_sequence(tmp_path: Path) -> None:
    means = []
    with load_model(printed_model("sequences.md", tmp_path / "running")) as model:
        for sequence, value, start in [(4, 10, True), (5, 1, True), (4, 20, False), (4, 60, False)]:
            inputs = {"X": [[value]]}
            request = InferenceRequest(inputs, correlation_id=sequence, sequence_start=start)
            means.append(model.infer(request)["MEAN"].item())

    assert [10, 1, 15, 30] == means


def test_a_handler_of_torchserve_as_a_model(tmp_path: Path) -> None:
    directory = printed_model("from-torchserve.md", tmp_path / "digits")
    weights = np.eye(64, 10, dtype=np.float32)
    np.save(directory / "1" / "weights.npy", weights)
    names = {str(number): f"digit {number}" for number in range(10)}
    (directory / "1" / "index_to_name.json").write_text(json.dumps(names))
    bodies = []
    for digit in (7, 2):
        image = np.zeros((8, 8), np.uint8)
        image[0, digit] = 16
        np.save(tmp_path / "image.npy", image)
        bodies.append((tmp_path / "image.npy").read_bytes())

    with load_model(directory) as model:
        rows = np.array([[body] for body in bodies], np.object_)
        together = model.infer(body=rows)
        answers = model.execute([{"body": rows[:1]}, {"body": rows[1:]}])

    assert [b"digit 7", b"digit 2"] == together["label"].ravel().tolist()
    assert [1.0, 1.0] == together["score"].ravel().tolist()
    assert [b"digit 7", b"digit 2"] == [answer.outputs["label"].item() for answer in answers]


def test_a_lit_api_as_a_model(tmp_path: Path) -> None:
    with load_model(printed_model("from-litserve.md", tmp_path / "square")) as model:
        answers = model.execute([{"input": [[4]]}, {"input": [[2], [3]]}])

    assert [[[16]], [[4], [9]]] == [answer.outputs["output"].tolist() for answer in answers]


def test_what_the_guide_for_tests_prints_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "zmqtriton" / "demo" / "models", tmp_path / "models")
    monkeypatch.chdir(tmp_path)
    assert 0 == main(["new", "totals", "--sequence"])
    text = (GUIDES / "testing.md").read_text("utf-8")
    *codes, alone = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)

    names: dict[str, Any] = {}
    for code in codes:
        exec(code, names)
    names["test_sums"]()
    monkeypatch.syspath_prepend(tmp_path / "models" / "add_sub" / "1")
    exec(alone, {})
    sys.modules.pop("model")


@pytest.mark.parametrize("guide", sorted(path.name for path in GUIDES.glob("*.md")))
def test_python_code_compiles(guide: str) -> None:
    text = (GUIDES / guide).read_text("utf-8")
    for code in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        compile(code, guide, "exec")
