"""Responses of a stream that are read while its job runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.journal import executions, release_execution
from tests.support.server import Server
from zmqtriton_extras.jobs.tests.asking import add_journal, ask, ended, soon, submit

pytestmark = pytest.mark.system

PLAIN = "        return [self._answer(request) for request in requests]"
#: Sends two responses, waits, and sends the last one.
DECOUPLED = """
        import numpy as np
        for request in requests:
            sender = request.get_response_sender()
            for value in ("one", "two"):
                text = np.array([[value]], np.object_)
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("ID", text)]))
            sender.send(self._answer(request), 1)
"""
STREAM = "/v2/models/journal/generate_stream"
ASYNC = {"Prefer": "respond-async"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("responses"), options=["--jobs"], frontends=())
    directory = add_journal(server)
    code: Path = directory / "1" / "model.py"
    text = code.read_text()
    assert PLAIN in text
    code.write_text(text.replace(PLAIN, DECOUPLED))
    with (directory / "config.pbtxt").open("a") as config:
        config.write("model_transaction_policy { decoupled: true }\n")
    add_journal(server, "plain")
    with server:
        yield server


def _responses(server: Server, job: str, after: int = 0) -> Any:
    reply = ask(server, f"/v2/jobs/{job}/responses?after={after}")
    assert reply.status == 200, reply
    return reply.document


def _ids(document: Any) -> list[str]:
    return [response["ID"] for response in document["responses"]]


def test_a_client_reads_them_as_they_come_and_goes_on_later(server: Server) -> None:
    job = ask(server, STREAM, b'{"ID": "last", "MS": -1}', ASYNC).document["id"]
    soon(lambda: len(_responses(server, job)["responses"]) == 2)

    first = _responses(server, job)
    assert (first["state"], first["tries"], _ids(first)) == ("running", 1, ["one", "two"])
    nothing = _responses(server, job, first["next"])
    assert (first["next"], []) == (nothing["next"], nothing["responses"])
    assert ask(server, f"/v2/jobs/{job}/result").status == 409

    release_execution(server.journal, "last")
    assert ended(server, job)["state"] == "succeeded"
    rest = _responses(server, job, first["next"])
    assert (rest["state"], _ids(rest)) == ("succeeded", ["last"])
    assert _ids(_responses(server, job)) == ["one", "two", "last"]
    assert rest["next"] == len(ask(server, f"/v2/jobs/{job}/result").body)


def test_a_job_that_waits_or_was_cancelled_has_none(server: Server) -> None:
    job = ask(server, STREAM, b'{"ID": "cancelled", "MS": -1}', ASYNC).document["id"]
    soon(lambda: executions(server.journal).get("cancelled") == 1)
    ask(server, f"/v2/jobs/{job}", method="DELETE")
    release_execution(server.journal, "cancelled")

    document = _responses(server, job)
    assert (document["state"], document["responses"], document["next"]) == ("cancelled", [], 0)


def test_an_answer_that_is_no_stream_is_the_result(server: Server) -> None:
    job = submit(server, "some", model="plain").document["id"]
    ended(server, job)

    refused = ask(server, f"/v2/jobs/{job}/responses")
    assert refused.status == 409
    assert f"/v2/jobs/{job}/result" in refused.document["error"]


@pytest.mark.parametrize("after", ["-1", "x", "1e3", str(1 << 63)])
def test_a_place_that_is_no_number_is_refused(server: Server, after: str) -> None:
    assert ask(server, f"/v2/jobs/{'0' * 26}/responses?after={after}").status == 400


def test_others_and_unknown_jobs_are_not_found(server: Server) -> None:
    for name in ("0" * 26, "..%2f..%2flock", "0"):
        assert ask(server, f"/v2/jobs/{name}/responses").status == 404
