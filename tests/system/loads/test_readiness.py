"""Models that say themselves whether they are ready, as HTTP and gRPC clients ask."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
import tritonclient.grpc
import tritonclient.http

from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

#: More than the 5 seconds that a model has.
_LONG_S = 30.0


SHARED = True


def prepare(server: Server) -> None:
    for name in ("sync", "async"):
        server.add_model("telling", name)
        _say(server, name, "yes")


def _say(server: Server, model: str, what: str) -> None:
    new = server.scratch / f"{model}.new"
    new.write_text(what)
    new.rename(server.scratch / model)


def _count_questions(server: Server, model: str) -> int:
    path = server.scratch / f"{model}.asked"
    return len(path.read_text()) if path.exists() else 0


def _model_status(server: Server, model: str) -> tuple[int, str]:
    return _status(server, f"/v2/models/{model}/ready")


def _status(server: Server, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(server.url + path, timeout=_LONG_S) as answer:
            return int(answer.status), answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def _infer(server: Server, model: str, wait: str) -> str:
    document = json.dumps({"WAIT": wait}).encode()
    url = f"{server.url}/v2/models/{model}/generate"
    with urllib.request.urlopen(url, document, timeout=_LONG_S) as answer:
        return str(json.load(answer)["TEXT"])


@pytest.mark.row("A28", "C03", "D02")
@pytest.mark.parametrize("model", ["sync", "async"])
def test_a_model_has_a_say_in_its_readiness(server: Server, model: str) -> None:
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        assert (200, "") == _model_status(server, model)
        assert client.is_model_ready(model)
        assert client.is_model_ready(model, "1")

        _say(server, model, "no")

        assert (400, '{"error":"Model version not ready"}') == _model_status(server, model)
        assert not client.is_model_ready(model)
        assert not client.is_model_ready(model, "1")

        _say(server, model, "yes")

        assert client.is_model_ready(model)


@pytest.mark.row("C02", "D01", "F40")
def test_the_server_is_ready_when_its_models_say_so(server: Server) -> None:
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        assert (200, "") == _status(server, "/v2/health/ready")
        assert client.is_server_ready()

        _say(server, "sync", "no")

        text = "a model says by its is_ready that it is not ready"
        assert (400, f'{{"error":"{text}"}}') == _status(server, "/v2/health/ready")
        assert not client.is_server_ready()
        assert (200, "") == _status(server, "/v2/health/live")
        assert client.is_server_live()

        _say(server, "sync", "yes")

        assert client.is_server_ready()


def test_a_client_goes_on_after_the_reason_that_it_does_not_read(server: Server) -> None:
    address = server.url.removeprefix("http://")
    with tritonclient.http.InferenceServerClient(address, concurrency=1) as client:
        assert client.is_server_ready()

        _say(server, "sync", "no")

        assert [False, False] == [client.is_server_ready() for _ in range(2)]
        assert client.is_server_live()
        assert "sync" == client.get_model_metadata("sync")["name"]
        _say(server, "sync", "yes")
        assert client.is_server_ready()


def test_what_is_not_ready_executes_all_the_same(server: Server) -> None:
    (server.scratch / "now").touch()
    _say(server, "sync", "no")

    assert "done" == _infer(server, "sync", "now")

    _say(server, "sync", "yes")


@pytest.mark.row("A28")
def test_anything_but_a_boolean_and_an_exception_is_logged_once(server: Server) -> None:
    for what, text in (
        ("maybe", "'sync_0_0': is_ready() must return a boolean value"),
        ("raise", "'sync_0_0': ValueError: no database\\n\\nAt:\\n"),
    ):
        _say(server, "sync", what)

        assert [400, 400, 400] == [_model_status(server, "sync")[0] for _ in range(3)]

        eventually(lambda: server.log_text().count(text) == 1, _LONG_S, "it is logged once")  # noqa: B023
    assert "model.py(34): is_ready" in server.log_text()
    _say(server, "sync", "yes")
    assert 200 == _model_status(server, "sync")[0]


@pytest.mark.row("A28")
def test_the_model_is_asked_while_it_executes(server: Server) -> None:
    with ThreadPoolExecutor(1) as threads:
        executing = threads.submit(_infer, server, "sync", "later")
        eventually((server.scratch / "later.begun").exists, _LONG_S, "execute() has begun")

        assert (200, "") == _model_status(server, "sync")
        assert not executing.done()

        (server.scratch / "later").touch()
        assert "done" == executing.result(_LONG_S)


@pytest.mark.row("A28")
def test_one_call_at_a_time_answers_all_who_ask_and_a_hung_one_means_no(server: Server) -> None:
    _say(server, "sync", "hang")
    before = _count_questions(server, "sync")

    with ThreadPoolExecutor(8) as threads:
        begun = time.monotonic()
        asking = [threads.submit(_model_status, server, "sync") for _ in range(8)]
        assert [400] * 8 == [one.result(_LONG_S)[0] for one in asking]
        assert time.monotonic() - begun > 4  # none of them was told before its time
    assert before + 1 == _count_questions(server, "sync")
    late = "'sync_0_0': is_ready() takes more than 5 seconds"
    eventually(lambda: late in server.log_text(), _LONG_S, "it is logged")
    # As long as it hangs nobody waits for it again.
    assert [400] * 50 == [_model_status(server, "sync")[0] for _ in range(50)]
    assert before + 1 == _count_questions(server, "sync")

    _say(server, "sync", "yes")

    eventually(lambda: _model_status(server, "sync")[0] == 200, _LONG_S, "ready again")


def test_a_model_that_hangs_there_can_be_unloaded(server: Server) -> None:
    server.add_model("telling", "hung")
    _say(server, "hung", "yes")
    with tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.http_port}") as client:
        client.load_model("hung")
        _say(server, "hung", "hang")
        before = _count_questions(server, "hung")
        asking = threading.Thread(target=_model_status, args=(server, "hung"))
        asking.start()
        eventually(lambda: _count_questions(server, "hung") > before, _LONG_S, "it is asked")
        [stub] = server.stub_pids("hung")

        client.unload_model("hung")

        eventually(lambda: stub not in server.stub_pids("hung"), _LONG_S, "its process has ended")
        asking.join(_LONG_S)
        eventually(lambda: "'hung' version 1" in server.log_text(), 60, "it is told")
        assert "finalize took more than" not in server.log_text()
