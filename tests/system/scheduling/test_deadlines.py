"""Deadlines of clients and their cancellations, through models, ensembles and streams."""

from __future__ import annotations

import json
import textwrap
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException

from tests.support.clients import infer_inputs
from tests.support.scraping import sum_series
from tests.support.scripted import DECOUPLED, open_stream, string_parameter
from tests.support.server import Copy, Server, tensor
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.system,
    pytest.mark.large_tensors,
    pytest.mark.server(
        models=[
            *(Copy("scripted", name) for name in ("asker", "middle", "leaf", "mortal")),
            Copy("scripted", "detached", string_parameter("DETACHED_CALLS", "yes")),
            Copy("scripted", "stream", DECOUPLED),
        ]
    ),
]
#: In so many seconds a request is executed by the last of three models, however busy a machine is.
_DEADLINE = "2"
#: Shows that it is executed, and goes on until it is told that nobody waits.
UNTIL_CANCELLED = """
    import time
    name = text_of(request)
    print(f"begun {name}.", flush=True)
    while not request.is_cancelled():
        time.sleep(0.01)
    print(f"cancelled {name}.", flush=True)
    return [reply("too late")]
"""


def source(script: str) -> str:
    return textwrap.dedent(script).strip()


def asking(model: str, script: str, argument: str = "") -> str:
    """Return the script that has another model run one, and answers what comes of it."""
    return f"""
        name = text_of(request) + " asks"
        print(f"begun {{name}}.", flush=True)
        heard = answer_of(ask({model!r}, {source(script)!r}, {argument!r}).exec())
        print(f"{{name}} and hears {{heard}}.", flush=True)
        return [reply(heard)]
    """


def has_logged(server: Server, text: str) -> bool:
    return text in server.log_text()


def document(script: str, argument: str) -> dict[str, str]:
    return {"SCRIPT": source(script), "ARGUMENT": argument}


def post(server: Server, path: str, body: Any, timeout: str | None) -> tuple[int, bytes]:
    """Return the status and the body."""
    headers = {} if timeout is None else {"X-Request-Timeout": timeout}
    answer = server.exchange(path, json.dumps(body).encode(), headers)
    return answer.status, answer.body


def generated(
    server: Server, model: str, script: str, argument: str, timeout: str | None
) -> tuple[int, str]:
    """Return the status, and the text or the error."""
    path = f"/v2/models/{model}/generate"
    status, body = post(server, path, document(script, argument), timeout)
    answer = json.loads(body)
    return status, answer["TEXT"] if status == 200 else answer["error"]


# ----------------------------------------------------------------- one model


@pytest.mark.row("L18")
def test_a_client_is_answered_at_its_deadline_and_the_model_is_told(server: Server) -> None:
    before = sum_series(server, "zmqtriton_deadlines_exceeded_total", model="leaf")

    status, error = generated(server, "leaf", UNTIL_CANCELLED, "alone", _DEADLINE)

    assert (504, True) == (status, "model 'leaf' was executing the request for" in error)
    eventually(lambda: has_logged(server, "cancelled alone."), 30, "it is told")
    assert before + 1 == sum_series(server, "zmqtriton_deadlines_exceeded_total", model="leaf")


@pytest.mark.row("L18")
@pytest.mark.parametrize("path", ["infer", "generate", "generate_stream", "infer_stream"])
def test_a_timeout_that_is_no_number_of_seconds_is_refused(server: Server, path: str) -> None:
    body_sent: Any = document("return [reply('x')]", "")
    if path.startswith("infer"):
        body_sent = {
            "inputs": [tensor(name, "BYTES", [value]) for name, value in body_sent.items()]
        }

    text = b"X-Request-Timeout must be a number of seconds above 0, such as 2.5, got"
    for timeout in ("", "0", "-1", "2s", "1e3", "nan", "1, 2", "1" * 10):
        status, body = post(server, f"/v2/models/leaf/{path}", body_sent, timeout)

        assert (400, True) == (status, text in body), timeout
    assert 200 == post(server, f"/v2/models/leaf/{path}", body_sent, "60.5")[0]


@pytest.mark.row("L18")
def test_a_model_reads_what_is_left(server: Server) -> None:
    script = "return [reply(request.remaining_s())]"

    status, left = generated(server, "leaf", script, "", "50")

    assert (200, True) == (status, 0 < float(left) <= 50)
    assert (200, "None") == generated(server, "leaf", script, "", None)
    with grpc_client.InferenceServerClient(server.grpc_address) as client:
        tensors = infer_inputs(grpc_client, SCRIPT=np.array([script.encode()], dtype=np.object_))
        result = client.infer("leaf", tensors, client_timeout=40)
    # gRPC sends a time of three digits, rounded up
    assert 0 < float(result.as_numpy("TEXT")[0]) <= 41


@pytest.mark.row("L18")
def test_a_stream_ends_at_its_deadline(server: Server) -> None:
    script = """
        import time
        sender = request.get_response_sender()
        while not request.is_cancelled():
            sender.send(reply("more"))
            time.sleep(0.02)
        print("stream cancelled.", flush=True)
        sender.send(flags=FINAL)
    """
    path = "/v2/models/stream/generate_stream"

    status, body = post(server, path, document(script, ""), _DEADLINE)

    *texts, last = [line for line in body.decode().splitlines() if line]
    assert (200, True) == (status, len(texts) > 1)
    assert all('"more"' in text for text in texts)
    assert "Deadline Exceeded: model 'stream' was executing the request for" in last
    eventually(lambda: has_logged(server, "stream cancelled."), 30, "it is told")


# ------------------------------------------------------- models that ask others


@pytest.mark.row("L18", "A65")
def test_a_deadline_of_grpc_goes_through_two_models(server: Server) -> None:
    script = asking("middle", asking("leaf", UNTIL_CANCELLED, "over gRPC"), "middle")
    tensors = infer_inputs(
        grpc_client,
        SCRIPT=np.array([source(script).encode()], dtype=np.object_),
        ARGUMENT=np.array([b"gRPC"], dtype=np.object_),
    )
    with (
        grpc_client.InferenceServerClient(server.grpc_address) as client,
        pytest.raises(InferenceServerException) as error,
    ):
        client.infer("asker", tensors, client_timeout=float(_DEADLINE))

    assert "StatusCode.DEADLINE_EXCEEDED" == error.value.status()
    eventually(lambda: has_logged(server, "cancelled over gRPC."), 30, "the last one is told")
    for name in ("gRPC", "middle"):
        eventually(partial(has_logged, server, f"{name} asks and hears CANCELLED"), 30, name)


@pytest.mark.row("L18", "A65")
def test_a_client_that_leaves_ends_all_that_was_asked_for_it(server: Server) -> None:
    script = asking("middle", asking("leaf", UNTIL_CANCELLED, "left alone"), "in between")
    with open_stream(server, "asker", script, "left"):
        eventually(lambda: has_logged(server, "begun left alone."), 30, "all execute")

    eventually(lambda: has_logged(server, "cancelled left alone."), 30, "the last one is told")
    because = "CANCELLED: request was cancelled, because the one that it was made for was"
    eventually(lambda: has_logged(server, f"left asks and hears {because}"), 30, "the first")
    eventually(lambda: has_logged(server, f"in between asks and hears {because}"), 30, "and it")


@pytest.mark.row("L18")
def test_with_a_stub_that_dies_all_ends_that_it_has_asked(server: Server) -> None:
    script = asking("middle", asking("leaf", UNTIL_CANCELLED, "orphaned"), "dying")
    with ThreadPoolExecutor(1) as pool:
        answering = pool.submit(generated, server, "mortal", script, "mortal", None)
        eventually(lambda: has_logged(server, "begun orphaned."), 30, "all execute")
        server.kill_only("stub", "mortal")
        status, error = answering.result()

    assert (503, True) == (status, "killed by SIGKILL" in error)
    eventually(lambda: has_logged(server, "cancelled orphaned."), 30, "the last one is told")


@pytest.mark.row("L18")
def test_a_fork_asks_for_the_request_in_which_it_was_made_and_later_for_nobody(
    server: Server,
) -> None:
    script = f"""
        import os, time
        name, log = text_of(request), {str(server.log)!r}
        if not os.fork():
            for _ in range(2):
                left = answer_of(ask("leaf", "return [reply(request.remaining_s())]").exec())
                print(f"fork {{name}} {{left != 'None'}}.", flush=True)
                while not os.path.exists(name):
                    time.sleep(0.01)
            os._exit(0)
        while f"fork {{name}} True." not in open(log).read():
            time.sleep(0.01)
        return [reply("done")]
    """
    name = str(server.scratch / "the fork")

    assert (200, "done") == generated(server, "asker", script, name, "50")
    (server.scratch / "the fork").touch()

    eventually(lambda: has_logged(server, f"fork {name} False."), 30, "it asks once more")


@pytest.mark.row("L18")
@pytest.mark.parametrize(
    ("model", "call"),
    [
        ("detached", "call.exec()"),
        ("asker", "(call.detach(), call.exec())[1]"),
        ("asker", "ThreadPoolExecutor(1).submit(call.exec).result()"),
    ],
)
def test_calls_may_go_on_without_the_client(server: Server, model: str, call: str) -> None:
    released = server.scratch / f"{model} {call[:5]}"
    waits = """
        import os, time
        while not os.path.exists(text_of(request)):
            time.sleep(0.01)
        return [reply(request.remaining_s())]
    """
    script = f"""
        from concurrent.futures import ThreadPoolExecutor
        call = ask("leaf", {source(waits)!r}, {str(released)!r})
        print(text_of(request), "hears", answer_of({call}), flush=True)
        return [reply("")]
    """
    status, _ = generated(server, model, script, call, _DEADLINE)
    released.touch()

    assert 504 == status
    eventually(lambda: has_logged(server, f"{call} hears None"), 30, "it was executed")
