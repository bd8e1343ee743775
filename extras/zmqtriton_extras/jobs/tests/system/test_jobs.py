"""Jobs over HTTP: kept, queued, executed, read, cancelled; and whose they are."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.support.journal import (
    UNTIL_RELEASED,
    executions,
    has_seen_cancellation,
    read_journal,
    release_execution,
)
from tests.support.needs import find_tool
from tests.support.scraping import pending_requests
from tests.support.server import Server
from zmqtriton_extras.jobs.process.store import FILE_BYTES
from zmqtriton_extras.jobs.tests.asking import (
    add_journal,
    ask,
    ended,
    journal_body,
    soon,
    state_of,
    submit,
)
from zmqtriton_floor import token_file
from zmqtriton_floor.token_file import ALL_MODELS, Grant

pytestmark = pytest.mark.system

INFER = "/v2/models/journal/infer"
PLAIN = "        return [self._answer(request) for request in requests]"
NODE = """
const [url, path, body] = process.argv.slice(1);
const underWay = ["queued", "running"];

(async () => {
  const headers = {Prefer: "respond-async"};
  const kept = await fetch(url + path, {method: "POST", body, headers});
  const place = url + kept.headers.get("location");
  let job = {state: "queued"};
  while (underWay.includes(job.state)) {
    await new Promise((resolve) => setTimeout(resolve, 20));
    job = await (await fetch(place)).json();
  }
  const removed = await fetch(place, {method: "DELETE"});
  const {status} = await fetch(place);
  const {data} = job.response.outputs[0];
  console.log(JSON.stringify([kept.status, job.state, data, removed.status, status]));
})();
"""
DECOUPLED = """
        for request in requests:
            request.get_response_sender().send(self._answer(request), 1)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("jobs")
    server = Server(directory, ["identity_fp32"], options=["--jobs"], frontends=("grpc",))
    for name in ("journal", "ordered"):
        add_journal(server, name, JOBS_LIMIT="1")
    with server:
        yield server


def test_curl_gets_202_and_the_outputs_later(server: Server, tmp_path: Path) -> None:
    curl = find_tool("curl")
    request = tmp_path / "request.json"
    request.write_bytes(journal_body("curl"))
    url = f"{server.url}{INFER}"
    words = [curl, "-s", "-i", "-d", f"@{request}", "-H", "Prefer: respond-async", url]

    answer = subprocess.run(words, capture_output=True, text=True, check=True).stdout

    head, _, body = answer.partition("\n\n")
    assert head.startswith("HTTP/1.1 202")
    job = json.loads(body)["id"]
    assert f"location: /v2/jobs/{job}\n" in head
    state = ended(server, job)
    assert state["state"] == "succeeded"
    assert state["response"]["outputs"][0]["data"] == ["curl"]
    result = ask(server, state["result"])
    assert (200, state["response"]) == (result.status, result.document)


def test_node_gets_202_and_the_outputs_later(server: Server) -> None:
    words = [find_tool("node"), "-e", NODE, f"{server.url}", INFER, journal_body("node").decode()]

    answer = subprocess.run(words, capture_output=True, check=True, timeout=60).stdout

    assert json.loads(answer) == [202, "succeeded", ["node"], 200, 404]


def test_a_request_that_does_not_ask_for_it_is_answered_at_once(server: Server) -> None:
    reply = ask(server, INFER, journal_body("now"), {"Prefer": "return=minimal"})

    assert (reply.status, reply.document["outputs"][0]["data"]) == (200, ["now"])


def test_jobs_wait_in_order_and_the_model_sees_a_cancellation(server: Server) -> None:
    # behind a short job of another test the next ones would begin on disk, and wait no more
    first, second, third = (
        submit(server, name, UNTIL_RELEASED, "ordered").document["id"]
        for name in ("first", "second", "third")
    )
    soon(lambda: executions(server.journal).get("first") == 1)

    assert state_of(server, first)["state"] == "running"
    assert [("queued", place) for place in (1, 2)] == [
        (state["state"], state["place"])
        for state in (state_of(server, second), state_of(server, third))
    ]
    assert ask(server, f"/v2/jobs/{second}/result").status == 409

    assert ask(server, f"/v2/jobs/{second}", method="DELETE").document["state"] == "cancelled"
    assert state_of(server, third)["place"] == 1
    ask(server, f"/v2/jobs/{first}", method="DELETE")
    soon(lambda: has_seen_cancellation(server.journal, "first"))
    for name in ("first", "third"):
        release_execution(server.journal, name)

    assert ended(server, third)["state"] == "succeeded"
    assert [state_of(server, job)["state"] for job in (first, second)] == ["cancelled"] * 2
    assert "second" not in executions(server.journal)
    # one that has ended is removed
    assert ask(server, f"/v2/jobs/{first}", method="DELETE").status == 200
    assert ask(server, f"/v2/jobs/{first}").status == 404


def test_a_job_fails_with_the_reason_that_its_client_would_have_got(server: Server) -> None:
    wrong = b'{"inputs": []}'
    refused = ask(server, INFER, wrong)

    job = ask(server, INFER, wrong, {"Prefer": "respond-async"}).document["id"]

    state = ended(server, job)
    assert ("failed", refused.document["error"]) == (state["state"], state["reason"])
    result = ask(server, state["result"])
    assert (refused.status, refused.body) == (result.status, result.body)


def test_a_request_that_is_repeated_with_its_key_is_the_same_job(server: Server) -> None:
    key = {"Idempotency-Key": "0f5d"}
    first, again = (submit(server, "once", headers=key) for _ in range(2))

    assert (202, first.document["id"]) == (again.status, again.document["id"])
    assert submit(server, "another", headers=key).status == 422
    assert submit(server, "long", headers={"Idempotency-Key": "k" * 256}).status == 400
    ended(server, first.document["id"])
    assert executions(server.journal)["once"] == 1


def test_large_tensors_are_files_and_come_back_as_they_were(server: Server) -> None:
    array = np.random.default_rng(3).random(1 << 20, np.float32)
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": list(array.shape)}
    head = json.dumps(
        {
            "inputs": [tensor | {"parameters": {"binary_data_size": array.nbytes}}],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    headers = {"Prefer": "respond-async", "Inference-Header-Content-Length": str(len(head))}

    job = ask(server, "/v2/models/identity_fp32/infer", head + array.tobytes(), headers).document[
        "id"
    ]

    state = ended(server, job)
    assert state["state"] == "succeeded", state
    assert "response" not in state
    result = ask(server, state["result"])
    length = int(result.headers["inference-header-content-length"])
    assert array.tobytes() == result.body[length:]
    bodies = server.directory / "state" / "zmqtriton" / "jobs" / "bodies"
    soon(lambda: [f"{job}.reply"] == [file.name for file in bodies.iterdir()])
    ask(server, f"/v2/jobs/{job}", method="DELETE")
    assert list(bodies.iterdir()) == []


@pytest.mark.parametrize(
    "batching",
    [
        "",
        pytest.param(
            "dynamic_batching { priority_levels: 2 default_priority_level: 2 }\n",
            marks=pytest.mark.long(
                "extras/jobs/system/test_jobs.py::test_a_request_whose_client_waits_goes_before_jobs"
            ),
        ),
    ],
)
def test_a_request_whose_client_waits_goes_before_jobs(tmp_path: Path, batching: str) -> None:
    server = Server(tmp_path, options=["--jobs"], frontends=("metrics",))
    directory = add_journal(server)
    with (directory / "config.pbtxt").open("a") as config:
        config.write(batching)

    def infer(name: str, milliseconds: int = 0) -> None:
        assert ask(server, INFER, journal_body(name, milliseconds)).status == 200

    with server, ThreadPoolExecutor() as clients:
        busy = clients.submit(infer, "busy", UNTIL_RELEASED)
        soon(lambda: executions(server.journal).get("busy") == 1)
        jobs = [submit(server, f"job {number}").document["id"] for number in range(3)]
        soon(lambda: pending_requests(server, "journal") == 3)
        online = clients.submit(infer, "online")
        soon(lambda: pending_requests(server, "journal") == 4)
        release_execution(server.journal, "busy")

        for done in (busy, online):
            done.result(60)
        assert [ended(server, job)["state"] for job in jobs] == ["succeeded"] * 3
        order = [record.id for record in read_journal(server.journal) if record.event == "start"]
        assert ["busy", "online", *(f"job {number}" for number in range(3))] == order


@pytest.mark.parametrize(
    "is_decoupled",
    [
        False,
        pytest.param(
            True,
            marks=pytest.mark.long(
                "extras/jobs/system/test_jobs.py::test_a_model_says_how_much_is_done",
                "stub/execution/test_responses.py::test_progress_is_told_where_a_client_follows_it_and_only_what_is_new",
            ),
        ),
    ],
)
def test_a_model_says_how_much_is_done(tmp_path: Path, is_decoupled: bool) -> None:
    server = Server(tmp_path, options=["--jobs"], frontends=())
    directory = add_journal(server)
    code = directory / "1" / "model.py"
    text = code.read_text()
    waits = "        while not os.path.exists"
    assert waits in text
    text = text.replace(waits, "        request.progress(0.4)\n" + waits)
    code.write_text(text.replace(PLAIN, DECOUPLED) if is_decoupled else text)
    with (directory / "config.pbtxt").open("a") as config:
        config.write(f"model_transaction_policy {{ decoupled: {str(is_decoupled).lower()} }}\n")
    path = "/v2/models/journal/generate_stream" if is_decoupled else INFER
    body = b'{"ID": "some", "MS": -1}' if is_decoupled else journal_body("some", UNTIL_RELEASED)

    with server:
        job = ask(server, path, body, {"Prefer": "respond-async"}).document["id"]

        soon(lambda: state_of(server, job).get("progress") == 0.4)
        release_execution(server.journal, "some")
        state = ended(server, job)
        assert state["state"] == "succeeded", state
        assert "progress" not in state
        # for a client that does not follow it the same line does nothing
        assert ask(server, path, body).status == 200


@pytest.mark.long(
    "extras/jobs/process/test_store.py::test_what_has_ended_long_ago_is_removed_with_its_files",
    "extras/jobs/process/test_store.py::test_a_limit_of_bytes_refuses_new_jobs_and_removes_none",
)
def test_jobs_have_a_time_to_live_and_a_limit_of_bytes(tmp_path: Path) -> None:
    options = ["--jobs", "--jobs-keep-secs=1", "--jobs-max-bytes=200000"]
    server = Server(tmp_path, options=options, frontends=())
    add_journal(server, JOBS_LIMIT="1")
    with server:
        running = submit(server, "running", UNTIL_RELEASED).document["id"]
        waiting = submit(server, "waits").document["id"]
        assert "waited for longer than --jobs-keep-secs=1" in ended(server, waiting)["reason"]
        assert state_of(server, running)["state"] == "running"

        refused = submit(server, "x" * 200_000)
        assert refused.status == 507
        assert "--jobs-max-bytes=200000" in refused.document["error"]

        release_execution(server.journal, "running")
        soon(lambda: ask(server, "/v2/jobs").document["jobs"] == [])
        assert ask(server, f"/v2/jobs/{running}").status == 404


def test_a_request_that_cannot_be_read_is_read_again_later_or_fails_its_job(
    server: Server,
) -> None:
    held = submit(server, "holds", UNTIL_RELEASED).document["id"]
    large = {"Prefer": "respond-async"}
    lost, late = (
        ask(server, INFER, journal_body(name).ljust(FILE_BYTES + 1), large).document["id"]
        for name in ("lost", "late")
    )
    bodies = server.directory / "state" / "zmqtriton" / "jobs" / "bodies"
    (bodies / f"{lost}.request").unlink()
    kept = (bodies / f"{late}.request").rename(bodies / f"{late}.elsewhere")
    (bodies / f"{late}.request").mkdir()

    release_execution(server.journal, "holds")
    state = ended(server, lost)
    soon(lambda: "Is a directory" in server.log_text())
    (bodies / f"{late}.request").rmdir()
    kept.rename(bodies / f"{late}.request")

    assert (
        state["state"],
        state["reason"],
    ) == ("failed", "the request cannot be read, send the job again: No such file or directory")
    assert [ended(server, job)["state"] for job in (late, held)] == ["succeeded"] * 2


def test_a_job_is_cancelled_while_its_request_is_read(server: Server) -> None:
    held = submit(server, "before", UNTIL_RELEASED).document["id"]
    body, prefer = journal_body("slow").ljust(FILE_BYTES + 1), {"Prefer": "respond-async"}
    slow = ask(server, INFER, body, prefer).document["id"]
    file = server.directory / "state" / "zmqtriton" / "jobs" / "bodies" / f"{slow}.request"
    file.unlink()
    os.mkfifo(file)
    release_execution(server.journal, "before")
    soon(lambda: state_of(server, slow)["state"] == "running")

    with file.open("wb") as pipe:  # its reader waits for the rest
        assert ask(server, f"/v2/jobs/{slow}", method="DELETE").document["state"] == "cancelled"
        pipe.write(body)

    after = submit(server, "after").document["id"]
    assert [ended(server, job)["state"] for job in (held, after)] == ["succeeded"] * 2
    assert "slow" not in executions(server.journal)


def test_an_error_of_the_disk_is_told_as_one(server: Server) -> None:
    bodies = server.directory / "state" / "zmqtriton" / "jobs" / "bodies"
    elsewhere = bodies.rename(bodies.with_name("elsewhere"))

    refused = submit(server, "refused")
    elsewhere.rename(bodies)

    assert refused.status == 500
    assert "cannot be used for jobs" in refused.document["error"]
    assert submit(server, "kept").status == 202


def test_a_server_without_receivers_refuses_webhooks(server: Server) -> None:
    refused = submit(server, "none", headers={"Webhook": "https://app.example/"})

    assert refused.status == 400
    assert "add the host to --webhook-allow" in refused.document["error"]


def test_a_job_of_an_unknown_model_is_refused_at_once(server: Server) -> None:
    refused = ask(server, "/v2/models/none/infer", b"{}", {"Prefer": "respond-async"})

    assert ask(server, "/v2/models/none/infer", b"{}")[::2] == refused[::2]


@pytest.mark.parametrize(
    "name", ["0", "..", "..%2f..%2flock", "%2e%2e%2fjobs.sqlite", "0" * 26 + "%00", "0" * 26]
)
def test_a_name_that_is_no_job_is_no_path(server: Server, name: str) -> None:
    for method in ("GET", "DELETE"):
        assert ask(server, f"/v2/jobs/{name}", method=method).status == 404


def test_a_job_belongs_to_its_token(tmp_path: Path) -> None:
    secrets = {name: f"zmqt_a-secret-of-{name}-0123456789" for name in ("ann", "ben", "guest")}
    scopes = token_file.parse_scopes("infer")
    models = {"ann": ALL_MODELS, "ben": ALL_MODELS, "guest": ("other",)}
    tokens = tmp_path / "tokens"
    tokens.write_text(
        "".join(
            Grant(name, token_file.Grant.digest_of(secret), scopes, models[name]).line() + "\n"
            for name, secret in secrets.items()
        )
    )
    tokens.chmod(0o600)
    ann, ben, guest = ({"Authorization": f"Bearer {secret}"} for secret in secrets.values())
    server = Server(tmp_path, options=["--jobs", f"--tokens={tokens}"], frontends=())
    add_journal(server)

    with server:
        assert submit(server, "nobody").status == 401
        assert submit(server, "guest", headers=guest).status == 403
        job = submit(server, "hers", headers=ann).document["id"]
        path = f"/v2/jobs/{job}"
        soon(lambda: ask(server, path, None, ann).document["state"] == "succeeded")

        for method in ("GET", "DELETE"):
            assert ask(server, path, None, ben, method).status == 404
        assert ask(server, f"{path}/result", None, ben).status == 404
        assert ask(server, "/v2/jobs", None, ben).document["jobs"] == []
        assert [job] == [each["id"] for each in ask(server, "/v2/jobs", None, ann).document["jobs"]]
        for file in (tmp_path / "state").rglob("*"):
            assert not file.is_file() or secrets["ann"].encode() not in file.read_bytes()
