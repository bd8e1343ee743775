"""Jobs belong to models: those that are loaded on demand, and those of OpenAI's API."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest

from tests.support.journal import UNTIL_RELEASED, executions, release_execution
from tests.support.server import Server
from zmqtriton_extras.jobs.tests.asking import add_journal, ask, ended, soon, state_of, submit

pytestmark = pytest.mark.system

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("models")
    options = ["--jobs", "--allow-openai", "--model-control-mode=explicit", "--load-on-demand"]
    server = Server(directory, ["parrot"], options=options, frontends=())
    server.add_model("parrot", "slow")
    add_journal(server)
    add_journal(server, "again", JOBS_REPEAT="true")
    with server:
        yield server


def submit_chat(server: Server, model: str, text: str) -> str:
    document = {"model": model, "messages": [{"role": "user", "content": text}]}
    reply = ask(server, CHAT, json.dumps(document).encode(), {"Prefer": "respond-async"})
    assert reply.status == 202, reply
    return str(reply.document["id"])


def test_a_job_loads_its_model(server: Server) -> None:
    reply = submit(server, "first", model="journal")

    assert reply.status == 202, reply
    assert ended(server, reply.document["id"])["state"] == "succeeded"


def test_a_job_for_no_model_is_refused(server: Server) -> None:
    reply = submit(server, "none", model="none")

    assert reply.status == 400
    assert "'none'" in reply.document["error"]


def test_the_first_job_of_a_model_runs_again_if_its_model_says_so(server: Server) -> None:
    job = submit(server, "twice", UNTIL_RELEASED, "again").document["id"]
    soon(lambda: "twice" in executions(server.journal))

    for pid in server.pids()["jobs"]:
        os.kill(pid, signal.SIGKILL)
    release_execution(server.journal, "twice")

    assert ended(server, job)["state"] == "succeeded"


def test_jobs_of_openai_s_api_wait_for_their_own_model_alone(server: Server) -> None:
    slow = [submit_chat(server, "slow", "FOREVER") for _ in range(6)]
    soon(lambda: [state_of(server, job)["state"] for job in slow].count("running") == 4)

    job = submit_chat(server, "parrot", "say it")

    assert ended(server, job)["state"] == "succeeded"
    for job in reversed(slow):
        ask(server, f"/v2/jobs/{job}", method="DELETE")


def test_a_job_of_openai_s_api_for_no_model_fails_with_the_route_s_reason(server: Server) -> None:
    state = ended(server, submit_chat(server, "nothing", "say it"))

    assert (state["state"], state["status"]) == ("failed", 404)
