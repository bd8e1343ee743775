"""Forests of decision trees on a real server: classes, probabilities, values, and broken files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton

from tests.support.needs import import_or_skip
from tests.support.server import Server
from zmqtriton_extras.backends.tests.system.serving import DESPITE_FAILURES

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        options=DESPITE_FAILURES,
        frontends=(),
    ),
]
FEATURES = 4
ROWS = np.random.default_rng(7).normal(size=(6, FEATURES)).astype(np.float32)


def train(path: Path, objective: str) -> Any:
    """A small forest as LightGBM's text; returns what predicts."""
    rows = np.random.default_rng(5).normal(size=(200, FEATURES))
    label = {
        "binary": (rows[:, 0] > 0).astype(int),
        "multiclass": np.digitize(rows[:, 0], [-0.5, 0.5]),
        "regression": 3 * rows[:, 0],
    }[objective]
    more = {"num_class": 3} if objective == "multiclass" else {}
    settings = {"objective": objective, "num_leaves": 4, "verbose": -1, "num_threads": 1, **more}
    lightgbm = import_or_skip("lightgbm")
    forest = lightgbm.train(settings, lightgbm.Dataset(rows, label), 5)
    path.parent.mkdir(parents=True, exist_ok=True)
    forest.save_model(path)
    return forest


def config(**parameters: str) -> str:
    lines = [
        f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}'
        for name, value in parameters.items()
    ]
    return "\n".join(['backend: "fil"', *lines, ""])


def io(*dims: int) -> str:
    return (
        f'input [ {{ name: "input__0" data_type: TYPE_FP32 dims: [ {FEATURES} ] }} ]\n'
        f'output [ {{ name: "output__0" data_type: TYPE_FP32 dims: {list(dims)} }} ]\n'
    )


BATCHES = "max_batch_size: 16\n"
FORESTS: dict[str, Any] = {}


def prepare(server: Server) -> None:
    import treelite  # which takes long, with all of SciPy

    def write(model: str, objective: str, text: str) -> Path:
        directory = server.repository / model
        FORESTS[model] = train(directory / "1" / "model.txt", objective)
        (directory / "config.pbtxt").write_text(text)
        return directory / "1" / "model.txt"

    write("bare", "binary", config())
    write("strict", "binary", config(model_type="lightgbm", threshold="0.9") + BATCHES + io(1))
    proba = config(model_type="lightgbm", predict_proba="true", output_class="true")
    write("two_columns", "binary", proba + BATCHES + io(2))
    write("values", "regression", config(model_type="lightgbm", output_class="false"))
    write("shares", "multiclass", proba + "max_batch_size: 8")
    text = write("checkpoint", "multiclass", config(model_type="treelite_checkpoint"))
    treelite.frontend.load_lightgbm_model(text).serialize(text.with_name("checkpoint.tl"))
    text.unlink()
    truncated = write("truncated", "binary", config())
    truncated.write_text(truncated.read_text()[:500])
    write("wrong_type", "binary", config(model_type="catboost"))
    write("wrong_width", "binary", config() + BATCHES + io(1).replace("[ 4 ]", "[ 5 ]"))


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Any]:
    with triton.InferenceServerClient(server.url.removeprefix("http://")) as client:
        yield client


def predict(client: Any, model: str, rows: Any = ROWS) -> Any:
    tensor = triton.InferInput("input__0", list(rows.shape), "FP32")
    tensor.set_data_from_numpy(rows)
    return client.infer(model, [tensor]).as_numpy("output__0")


def reason(client: Any, model: str) -> str:
    (entry,) = [m for m in client.get_model_repository_index() if m["name"] == model]
    return str(entry.get("reason", ""))


@pytest.mark.row("K07")
def test_a_file_and_a_backend_are_enough(client: Any) -> None:
    expected = FORESTS["bare"].predict(ROWS[:4]) > 0.5

    assert expected.tolist() == predict(client, "bare", ROWS[:4]).tolist()
    config = client.get_model_config("bare")
    assert (config["input"][0]["name"], config["input"][0]["dims"]) == ("input__0", [FEATURES])
    assert (config["output"][0]["name"], config["output"][0]["dims"]) == ("output__0", [1])
    assert (config["max_batch_size"], "dynamic_batching" in config) == (4, True)


@pytest.mark.row("K07")
def test_classes_probabilities_and_values(client: Any) -> None:
    def close(model: str, expected: Any) -> None:
        predictions = predict(client, model, ROWS[:4])
        np.testing.assert_allclose(predictions, expected, rtol=1e-5)

    binary, classes = (FORESTS[m].predict(ROWS[:4]) for m in ("bare", "shares"))
    close("strict", binary > 0.9)
    close("two_columns", np.stack([1 - binary, binary], axis=1))
    close("values", FORESTS["values"].predict(ROWS[:4]))
    close("checkpoint", np.argmax(classes, axis=1))
    close("shares", classes)
    assert predict(client, "shares", ROWS[:4]).shape == (4, 3)


def test_a_missing_feature_is_not_a_number(client: Any) -> None:
    rows = ROWS[:2].copy()
    rows[0, 0] = np.nan

    predictions = predict(client, "two_columns", rows)[:, 1]
    np.testing.assert_allclose(predictions, FORESTS["bare"].predict(rows), rtol=1e-5)


@pytest.mark.row("K07")
@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("truncated", "treelite: cannot read "),
        ("wrong_type", "must be one of xgboost_json, xgboost_ubj, "),
        (
            "wrong_width",
            "the model expects 2 dimensions (shape [-1,4]) but the model configuration",
        ),
    ],
)
def test_what_cannot_be_served_has_a_reason(client: Any, model: str, text: str) -> None:
    assert text in reason(client, model)
