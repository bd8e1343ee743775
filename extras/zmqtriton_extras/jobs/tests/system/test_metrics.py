"""Jobs on the page of metrics, and in the limits of their tokens."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.journal import UNTIL_RELEASED, executions, release_execution
from tests.support.scraping import read_series
from tests.support.server import Server
from zmqtriton_extras.jobs.metrics import metrics
from zmqtriton_extras.jobs.tests.asking import add_journal, ask, ended, journal_body, soon, submit
from zmqtriton_floor import token_file
from zmqtriton_floor.token_file import Grant
from zmqtriton_standard.metrics import services

pytestmark = pytest.mark.system

INFER = "/v2/models/journal/infer"


def _figures(server: Server) -> dict[str, float]:
    names = ("zmqtriton_jobs{", "zmqtriton_oldest_job_seconds{", "zmqtriton_webhook_tries_total{")
    return {name: value for name, value in read_series(server).items() if name.startswith(names)}


def test_without_the_process_of_jobs_the_page_has_none(tmp_path: Path) -> None:
    server = SimpleNamespace(runtime_directory=str(tmp_path))
    gateway: Any = SimpleNamespace(settings=SimpleNamespace(server=server))

    async def render() -> str:
        return await services.render([metrics(gateway)])

    assert asyncio.run(render()) == ""


def test_jobs_are_counted_by_state_and_the_oldest_has_an_age(tmp_path: Path) -> None:
    server = Server(tmp_path, options=["--jobs"], frontends=("metrics",))
    add_journal(server, JOBS_LIMIT="1")
    with server:
        soon(lambda: _figures(server))
        none = _figures(server)
        assert {0} == set(none.values())
        assert not any(name.startswith("zmqtriton_jobs{") for name in none)

        running = submit(server, "running", UNTIL_RELEASED).document["id"]
        waiting = [submit(server, f"waits {n}").document["id"] for n in range(2)]
        soon(lambda: executions(server.journal).get("running") == 1)

        figures = _figures(server)
        ages = [
            figures.pop(f'zmqtriton_oldest_job_seconds{{state="{state}"}}')
            for state in ("queued", "running")
        ]
        assert all(age > 0 for age in ages)
        assert figures == {
            'zmqtriton_jobs{model="journal",state="queued"}': 2,
            'zmqtriton_jobs{model="journal",state="running"}': 1,
            'zmqtriton_webhook_tries_total{result="delivered"}': 0,
            'zmqtriton_webhook_tries_total{result="failed"}': 0,
        }

        release_execution(server.journal, "running")
        for job in (running, *waiting):
            ended(server, job)
        assert _figures(server)['zmqtriton_jobs{model="journal",state="succeeded"}'] == 3
        assert "zmqtriton_jobs_writable 1" in server.metrics_text()


@pytest.mark.long(
    "system/protocols/test_tokens.py::test_a_token_has_one_rate_over_both_protocols_and_metrics_by_its_name"
)
def test_a_job_counts_as_a_request_of_its_token(tmp_path: Path) -> None:
    secret = "zmqt_a-secret-of-one-at-a-time"
    grant = Grant(
        "single",
        token_file.Grant.digest_of(secret),
        token_file.parse_scopes("infer"),
        concurrency=1,
    )
    tokens = tmp_path / "tokens"
    tokens.write_text(grant.line() + "\n")
    tokens.chmod(0o600)
    bearer = {"Authorization": f"Bearer {secret}"}
    server = Server(tmp_path / "s", options=["--jobs", f"--tokens={tokens}"], frontends=())
    add_journal(server)

    def state(job: str) -> str:
        return str(ask(server, f"/v2/jobs/{job}", None, bearer).document["state"])

    with server:
        first, second = (
            submit(server, name, UNTIL_RELEASED, headers=bearer).document["id"]
            for name in ("first", "second")
        )
        soon(lambda: executions(server.journal).get("first") == 1)
        # it is put off like any request of the token beyond its limit, which a client would repeat
        online = ask(server, INFER, journal_body("online"), bearer)
        assert online.status == 429
        soon(lambda: state(second) == "queued")
        assert "second" not in executions(server.journal)

        for name in ("first", "second"):
            release_execution(server.journal, name)
        soon(lambda: [state(job) for job in (first, second)] == ["succeeded"] * 2)
        assert executions(server.journal) == {"first": 1, "second": 1}
