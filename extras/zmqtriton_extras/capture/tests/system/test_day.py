"""A captured day of the demo's repository, sent to a new process, and to a changed model."""

from __future__ import annotations

import json
import queue
import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton

from tests.support.server import MODELS_DIRECTORY
from zmqtriton_extras.authoring.demo import MODELS
from zmqtriton_extras.capture.tests.system.test_capture import CapturingServer

pytestmark = pytest.mark.system

_CHAT = MODELS_DIRECTORY / "parrot"
_X = [float(x) for x in range(16)]
_TEXT = {"name": "TEXT", "shape": [1, 2], "datatype": "BYTES", "data": ["hello", "world"]}


def numbers(*names: str, shape: tuple[int, ...] = (1, 16)) -> list[dict[str, Any]]:
    return [{"name": n, "shape": [*shape], "datatype": "FP32", "data": _X} for n in names]


#: Paths and bodies: each model of the demo, by each way of HTTP, with its errors.
_REQUESTS: list[tuple[str, Any]] = [
    ("models/add_sub/infer", {"inputs": numbers("INPUT0", "INPUT1"), "id": "first"}),
    ("models/doubled/infer", {"inputs": numbers("LEFT", "RIGHT")}),
    ("models/string_upper/infer", {"inputs": [_TEXT]}),
    ("models/string_upper/generate", {"TEXT": "by generate"}),
    ("models/tokens/generate_stream", {"TEXT": "as it comes", "DELAY_MS": 1}),
    ("models/tokens/infer_stream", {"inputs": [{**_TEXT, "shape": [1], "data": ["one two"]}]}),
    (
        "models/pipeline/infer",
        {"inputs": [{**_TEXT, "shape": [2]}, *numbers("LEFT", "RIGHT", shape=(16,))]},
    ),
    *(
        (
            "models/crashy/infer",
            {"inputs": [{"name": "MODE", "shape": [1], "datatype": "INT32", "data": [mode]}]},
        )
        for mode in (3, 1)
    ),
]
_CHATS = [
    {
        "model": "parrot",
        "messages": [{"role": "user", "content": "tell me"}],
        "stream": streamed,
    }
    for streamed in (False, True)
]


def spend_a_day(server: CapturingServer) -> int:
    """Ask for all of it; return how many requests that were."""
    for path, form in _REQUESTS:
        post(server, f"/v2/{path}", form)
    for form in _CHATS:
        post(server, "/v1/chat/completions", form)
    answers: queue.Queue[Any] = queue.Queue()
    array = np.array([_X], np.float32)
    inputs = [triton.InferInput(name, [1, 16], "FP32") for name in ("INPUT0", "INPUT1")]
    for tensor in inputs:
        tensor.set_data_from_numpy(array)
    with triton.InferenceServerClient(server.grpc_address) as client:
        client.infer("add_sub", inputs)
        client.start_stream(lambda result, error: answers.put(error))
        client.async_stream_infer("add_sub", inputs)
        assert answers.get(timeout=60) is None
        client.stop_stream()
    return len(_REQUESTS) + len(_CHATS) + 2


def post(server: CapturingServer, path: str, form: Any) -> None:
    """Ask, and read all of the answer, which may be an error."""
    try:
        with urllib.request.urlopen(
            f"{server.url}{path}", json.dumps(form).encode(), timeout=60
        ) as answer:
            answer.read()
    except urllib.error.HTTPError as error:
        with error:
            error.read()


def test_a_day_replays_equal_on_a_new_process_and_a_changed_model_is_found(tmp_path: Path) -> None:
    models = [*MODELS.iterdir(), _CHAT]
    with CapturingServer(
        tmp_path, "--allow-openai=true", models=models, frontends=("grpc", "metrics")
    ) as server:
        count = spend_a_day(server)
        server.await_records(count)
        page = server.metrics_text()
    for model in (path.name for path in models):
        of_model = len(server.records(model))
        assert f'zmqtriton_captures_total{{model="{model}",result="written"}} {of_model}\n' in page

    words = ["replay", str(server.captures), f"--repository={server.repository}", "--json"]
    same = server.ctl(*words)
    code = server.repository / "add_sub" / "1" / "model.py"
    code.write_text(code.read_text().replace("left - right", "left - right + 1e-3"))
    shutil.rmtree(server.repository / "parrot")
    changed = server.ctl(*words, "--model=add_sub")

    assert ({"equal": count}, []) == (results(same), json.loads(same.stdout)["tensors"])
    assert (same.returncode, changed.returncode) == (0, 1), same.stderr + changed.stderr
    [row] = json.loads(changed.stdout)["tensors"]
    assert (row["model"], row["tensor"], row["count"]) == ("add_sub", "OUTPUT1", 3)
    assert "by up to 0.001" in row["worst"]


def results(done: Any) -> Any:
    return json.loads(done.stdout)["results"]
