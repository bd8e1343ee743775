"""Webhooks of jobs of a real server, which a receiver of the test gets."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.standard.ctl.system.commands import OPTION, ctl
from tests.support.journal import UNTIL_RELEASED, executions, release_execution
from tests.support.server import ROOT, Server, free_ports
from zmqtriton_extras.jobs.tests.asking import (
    add_journal,
    ask,
    ended,
    journal_body,
    soon,
    state_of,
    submit,
)
from zmqtriton_extras.jobs.tests.webhook_receiver import KEY, SECRET, App, webhook_options

pytestmark = pytest.mark.system

OTHER_SECRET = f"whsec_{base64.b64encode(KEY[::-1]).decode()}"


@pytest.fixture(scope="module")
def app() -> Iterator[App]:
    with App() as app:
        yield app


@pytest.fixture(scope="module")
def silent() -> Iterator[socket.socket]:
    """A receiver that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        yield listener


@pytest.fixture(scope="module")
def guide_port() -> int:
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, app: App, silent: socket.socket, guide_port: int
) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("webhooks")
    name = OPTION.replace("@DIRECTORY@", str(directory))
    quiet = f"127.0.0.1:{silent.getsockname()[1]}"
    allowed = (app.authority, quiet, f"127.0.0.1:{guide_port}", "localhost")
    options = [*webhook_options(directory, *allowed), name]
    server = Server(directory / "server", options=options, frontends=())
    add_journal(server)
    with server:
        yield server


def _submit(server: Server, own_id: str, url: str, milliseconds: int = 0) -> str:
    reply = submit(server, own_id, milliseconds, headers={"Webhook": url})
    assert reply.status == 202, reply
    return str(reply.document["id"])


def _webhook(server: Server, job: str) -> Any:
    return state_of(server, job)["webhook"]


def _is_delivered(server: Server, job: str) -> bool:
    return bool(_webhook(server, job)["state"] == "delivered")


def test_the_end_of_a_job_is_posted_with_a_signature(server: Server, app: App) -> None:
    job = _submit(server, "told", app.url)

    soon(lambda: _is_delivered(server, job))
    [post] = app.of(job)
    state = state_of(server, job)
    assert {"url": app.url, "state": "delivered", "tries": 1} == state.pop("webhook")
    del state["response"]
    assert ("job.succeeded", state) == (post.document["type"], post.document["data"])
    assert post.is_signed
    assert post.headers["content-type"] == "application/json"
    assert "zmqtriton/" in post.headers["user-agent"]


def test_a_document_may_name_its_receiver(server: Server, app: App) -> None:
    document = json.loads(journal_body("in the document")) | {"webhook": app.url}
    path, prefer = "/v2/models/journal/infer", {"Prefer": "respond-async"}

    job = ask(server, path, json.dumps(document).encode(), prefer).document["id"]

    soon(lambda: _is_delivered(server, job))
    assert app.of(job)[0].document["data"]["state"] == "succeeded"
    for other, text in ((5, "must be a URL"), ("http://10.0.0.1/", "not allowed")):
        refused = ask(server, path, json.dumps(document | {"webhook": other}).encode(), prefer)
        assert refused.status == 400
        assert text in refused.document["error"]
    # without a job it means nothing
    assert ask(server, path, json.dumps(document).encode()).status == 200


def test_openai_s_client_verifies_it(server: Server, app: App) -> None:
    openai = pytest.importorskip("openai")
    job = _submit(server, "openai", app.url)
    soon(lambda: app.of(job))
    post = app.of(job)[0]
    webhooks = openai.OpenAI(api_key="none", webhook_secret=SECRET).webhooks

    webhooks.verify_signature(post.body, post.headers)
    with pytest.raises(openai.InvalidWebhookSignatureError):
        webhooks.verify_signature(post.body + b" ", post.headers)


@pytest.mark.parametrize("is_forged", [False, True])
def test_the_receiver_of_the_guide_verifies_it(
    server: Server, guide_port: int, tmp_path: Path, is_forged: bool
) -> None:
    text = (ROOT / "docs" / "guides" / "jobs.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    [code] = [block for block in blocks if "KEY" in block]
    (tmp_path / "receive.py").write_text(code.replace("9000", str(guide_port)))
    (tmp_path / "secret").write_text(OTHER_SECRET if is_forged else SECRET)
    url = f"http://127.0.0.1:{guide_port}/done"
    command = [sys.executable, "receive.py"]
    receiver = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        job = _submit(server, f"guide {is_forged}", url)
        if is_forged:
            soon(lambda: _webhook(server, job).get("problem") == "the answer was 403")
        else:
            soon(lambda: _is_delivered(server, job))
    finally:
        receiver.kill()
        receiver.wait()


def test_a_try_that_fails_is_repeated_as_the_same_message(server: Server, app: App) -> None:
    app.statuses[:] = [500, 302]
    job = _submit(server, "repeated", app.url)

    soon(lambda: _is_delivered(server, job))
    posts = app.of(job)
    assert (len(posts), len({post.message for post in posts})) == (3, 1)
    assert len({post.body for post in posts}) == 1
    assert _webhook(server, job)["tries"] == 3
    table = ctl(server, "jobs").output.splitlines()
    [row] = [row for row in table if row.startswith(job)]
    assert row.split("\t")[table[0].split("\t").index("Webhook")] == "delivered, 3 tries"


def test_a_receiver_that_is_slow_delays_no_other(
    server: Server, app: App, silent: socket.socket
) -> None:
    nowhere = f"http://127.0.0.1:{silent.getsockname()[1]}/"
    slow = [_submit(server, f"slow {number}", nowhere) for number in range(20)]
    soon(lambda: all(state_of(server, job)["state"] == "succeeded" for job in slow))
    soon(lambda: sum(_webhook(server, job)["tries"] for job in slow) >= 8)

    quick = _submit(server, "quick", app.url)

    soon(lambda: _is_delivered(server, quick))
    assert {"sending"} == {_webhook(server, job)["state"] for job in slow}
    soon(lambda: any("within 10 s" in _webhook(server, job).get("problem", "") for job in slow))


def test_a_job_that_fails_or_is_cancelled_is_told(server: Server, app: App) -> None:
    cancelled = _submit(server, "cancelled", app.url, UNTIL_RELEASED)
    soon(lambda: executions(server.journal).get("cancelled") == 1)

    ask(server, f"/v2/jobs/{cancelled}", method="DELETE")
    release_execution(server.journal, "cancelled")
    wrong = ask(
        server,
        "/v2/models/journal/infer",
        b"{}",
        {"Prefer": "respond-async", "Webhook": app.url},
    ).document["id"]

    soon(lambda: app.of(cancelled) and app.of(wrong))
    assert app.of(cancelled)[0].document["type"] == "job.cancelled"
    post = app.of(wrong)[0].document
    assert ("job.failed", ended(server, wrong)["reason"]) == (post["type"], post["data"]["reason"])


def test_a_name_that_means_this_machine_is_not_connected_to(server: Server, app: App) -> None:
    job = _submit(server, "name", "http://localhost/")

    soon(lambda: "problem" in _webhook(server, job))
    assert "is not public" in _webhook(server, job)["problem"]


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://[::ffff:169.254.169.254]/",
        "http://2852039166/",
        "http://@APP@@169.254.169.254/",
        "http://@APP@#@none.example/",
        "https://none.example/",
        "file:///etc/passwd",
        "gopher://@APP@/",
    ],
)
def test_a_url_that_is_not_allowed_is_refused_at_once(server: Server, app: App, url: str) -> None:
    refused = submit(server, "refused", headers={"Webhook": url.replace("@APP@", app.authority)})

    assert refused.status == 400
    assert "webhook" in refused.document["error"]


def test_no_webhook_is_lost_by_a_death(server: Server, app: App) -> None:
    app.close()
    try:
        jobs = [_submit(server, f"death {number}", app.url) for number in range(5)]
        soon(lambda: all(_webhook(server, job)["tries"] for job in jobs))
        for pid in server.pids()["jobs"]:
            os.kill(pid, signal.SIGKILL)
        soon(lambda: ask(server, "/v2/jobs").status == 200)
    finally:
        app.open()

    soon(lambda: all(_is_delivered(server, job) for job in jobs))
    assert {1} == {len({post.message for post in app.of(job)}) for job in jobs}


@pytest.mark.long(
    "extras/jobs/system/test_webhooks.py::test_no_webhook_is_lost_by_a_death",
    "extras/jobs/process/webhooks/test_records.py::test_a_try_that_died_with_its_process_is_made_again",
)
def test_no_webhook_is_lost_by_a_restart(tmp_path: Path) -> None:
    app = App()
    server = Server(tmp_path / "s", options=webhook_options(tmp_path, app.authority), frontends=())
    add_journal(server)
    with server:
        jobs = [_submit(server, f"{number}", app.url) for number in range(5)]
        soon(lambda: all(_webhook(server, job)["tries"] for job in jobs))
        server.kill()
        server.process = None
        server.start()
        with app:
            soon(lambda: all(_is_delivered(server, job) for job in jobs))

        assert {1} == {len({post.message for post in app.of(job)}) for job in jobs}
