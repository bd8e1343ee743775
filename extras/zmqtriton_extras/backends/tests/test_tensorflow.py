"""SavedModels, from directory to answer; `make test KIND=frameworks` has TensorFlow installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zmqtriton_extras.backends.tests import summing
from zmqtriton_extras.backends.tests.served import Served
from zmqtriton_stub.api.errors import TritonModelException

tensorflow = pytest.importorskip("tensorflow")

ROW = np.array([[1, 2, 3]], dtype=np.float32)


def write(directory: Path, rows: int | None = None) -> Path:
    """twice = 2 * x, and the words joined; another signature has the first only."""
    module = tensorflow.Module()
    module.factor = tensorflow.Variable(2.0)
    numbers = tensorflow.TensorSpec([rows, 3], tensorflow.float32, name="x")
    words = tensorflow.TensorSpec([rows, 1], tensorflow.string, name="words")

    @tensorflow.function(input_signature=[numbers, words])
    def both(x: Any, words: Any) -> Any:
        return {"twice": module.factor * x, "joined": words + words}

    @tensorflow.function(input_signature=[numbers])
    def one(x: Any) -> Any:
        return {"twice": module.factor * x}

    module.both, module.one = both, one
    path = directory / "1" / "model.savedmodel"
    signatures = {"serving_default": both, "one": one}
    tensorflow.saved_model.save(module, str(path), signatures=signatures)
    return path


def signature(name: str) -> str:
    return f'parameters {{ key: "TF_SIGNATURE_DEF" value {{ string_value: "{name}" }} }}'


@pytest.mark.row("K05")
def test_a_directory_alone_is_a_model_with_its_tensors(tmp_path: Path) -> None:
    write(tmp_path / "m")

    served = Served(tmp_path / "m", "")

    inputs = {"x": ROW, "words": np.array([["ä".encode()]], dtype=np.object_)}
    expected = {"twice": [[2, 4, 6]], "joined": [["ää".encode()]]}
    assert [expected, expected] == served.ask_all(inputs, inputs)
    config = served.config
    assert (config["platform"], config["max_batch_size"]) == ("tensorflow_savedmodel", 4)
    assert [(e["name"], e["dims"]) for e in config["input"]] == [("words", [1]), ("x", [3])]


@pytest.mark.row("K05")
def test_another_signature_and_fixed_sizes(tmp_path: Path) -> None:
    write(tmp_path / "m", rows=1)

    served = Served(tmp_path / "m", signature("one"))

    assert served.ask(x=ROW) == {"twice": [[2, 4, 6]]}
    assert served.config["max_batch_size"] == 0


@pytest.mark.row("K05")
def test_what_cannot_be_served_has_a_reason(tmp_path: Path) -> None:
    def refused(text: str) -> str:
        with pytest.raises(TritonModelException) as error:
            Served(tmp_path / "m", text)
        return str(error.value)

    path = write(tmp_path / "m")
    assert "has no signature 'two'; it has one, serving_default" in refused(signature("two"))
    (path / "saved_model.pb").write_bytes(b"x")
    assert f"tensorflow: cannot load {path}; save it again: " in refused("")
    graph = path.with_name("model.graphdef")
    graph.write_bytes(b"x")
    assert f"tensorflow: cannot load {graph}; save it again: " in refused(
        'platform: "tensorflow_graphdef"'
    )


def write_graph(directory: Path) -> None:
    """The same sums as a SavedModel and as a GraphDef of TensorFlow 1, which keeps capitals."""
    old = tensorflow.compat.v1
    with tensorflow.Graph().as_default() as graph, old.Session() as session:
        given = {
            name: old.placeholder(tensorflow.int32, [None, 1], name)
            for name in ("VALUE", "READY", "BEFORE")
        }
        total = given["BEFORE"] + given["VALUE"]
        found = {name: tensorflow.identity(total, name) for name in ("TOTAL", "AFTER")}
        path = directory / "saved" / "1" / "model.savedmodel"
        old.saved_model.simple_save(session, str(path), given, found)
    path = directory / "graph" / "1" / "model.graphdef"
    path.parent.mkdir(parents=True)
    path.write_bytes(graph.as_graph_def().SerializeToString())


@pytest.mark.row("K05")
def test_graphdefs_and_the_controls_and_states_of_sequences(tmp_path: Path) -> None:
    write_graph(tmp_path)
    _, _, batching = summing.CONFIG.partition("sequence_batching")

    for name in ("saved", "graph"):
        whole = Served(tmp_path / name, summing.CONFIG)
        bare = Served(tmp_path / name, f"max_batch_size: 4 sequence_batching{batching}")

        assert summing.answers(whole) == summing.EXPECTED
        assert [entry["name"] for entry in bare.config["input"]] == ["VALUE"]
        assert [entry["name"] for entry in bare.config["output"]] == ["AFTER", "TOTAL"]
        with pytest.raises(TritonModelException, match="control 'BUSY', but model does not"):
            Served(tmp_path / name, summing.CONFIG.replace('"READY"', '"BUSY"'))
        with pytest.raises(TritonModelException, match="output 'V', allowed outputs are: AFTER"):
            Served(tmp_path / name, summing.CONFIG.replace('"TOTAL"', '"V"'))
    whole = Served(tmp_path / "graph", summing.CONFIG)
    assert whole.config["platform"] == "tensorflow_graphdef"
