"""State, history and log over HTTP, and who may read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.frontends.http_api.fakes import Client, FakeGateway
from zmqtriton_floor import token_file
from zmqtriton_floor.errors import Unsupported, ZmqTritonError
from zmqtriton_floor.settings.frontends import Restriction
from zmqtriton_floor.token_file import Grant

pytestmark = pytest.mark.slow

STATUS, HISTORY, LOGS = (f"/v2/zmqtriton/{what}" for what in ("status", "history", "logs"))
PROCESS: dict[str, Any] = {"started_s": 1000.0, "restarts": 0, "last_reason": ""}
FOUND: dict[str, Any] = {
    "server": {
        **{"id": "s", "version": "1.0", "commit": "abc"},
        **{"directory": "/run/s", "addresses": {"http": "[::]:1"}},
        "ready": "1 of 2 model versions are ready, not other version 1",
    },
    "processes": [
        {**PROCESS, "role": "supervisor", "pid": 1},
        {**PROCESS, "role": "stub", "pid": 2, "model": "good", "version": 1},
        {**PROCESS, "role": "stub", "pid": 3, "model": "other", "version": 1},
        {**PROCESS, "role": "environment", "pid": 4, "model": "new", "state": "preparing it"},
    ],
    "environments": [{"model": "new", "step": "reading it", "progress": 0.5, "seconds": 60.0}],
    "counts": [
        {"model": "good", "version": 1, "pending": 2, "unanswered": 5, "succeeded": 7, "failed": 1}
    ],
    "malformed": 0,
    "repositories": ["/models"],
    "drains": [],
}
INDEX = [
    {
        "name": "asleep",
        "state": "UNAVAILABLE",
        "reason": "not loaded: waits for its first request",
        "why": {"kind": "AWAITS_REQUEST", "values": {}},
    },
    {"name": "good", "version": "1", "state": "READY", "reason": ""},
    {"name": "other", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"},
]
LINES = [{"time_s": float(time_s), "text": str(time_s)} for time_s in range(10)]


class Gateway(FakeGateway):
    """Has an answer for each call."""

    def __init__(self, **settings: Any) -> None:
        # by that name Falcon's client calls it
        super().__init__(http_allowed_host=["falconframework.org"], **settings)
        self.answers: dict[str, Any] = {
            "status": FOUND,
            "index": INDEX,
            "latest": {
                "processes": {"2": {"cpu_percent": 12.5, "memory_bytes": 4096}},
                "rates": {},
                "machine": [],
            },
            "history": {"times": [1.0], "models": {"good:1": {}}},
            "logs": {"lines": LINES, "last": 9, "lost": 0},
        }

    async def call(self, verb: str, arguments: dict[str, Any], client: str = "") -> Any:
        await super().call(verb, arguments)
        answer = self.answers[verb]
        if isinstance(answer, ZmqTritonError):
            raise answer
        return json.loads(json.dumps(answer))


def get(gateway: Gateway, path: str, **headers: str) -> Any:
    return Client(gateway).request("GET", path, headers=headers)


def test_it_has_what_each_process_takes() -> None:
    document = get(Gateway(), STATUS).json

    _, good, other, _ = document["processes"]
    assert (12.5, 4096) == (good["cpu_percent"], good["memory_bytes"])
    assert (None, None) == (other["cpu_percent"], other["memory_bytes"])
    assert good["uptime_s"] > 0
    assert FOUND["environments"] == document["environments"]


def test_without_a_metrics_process_it_has_all_else() -> None:
    gateway = Gateway()
    gateway.answers["latest"] = gateway.answers["history"] = Unsupported("--allow-metrics=false")

    document = get(gateway, STATUS).json
    assert 4 == len(document["processes"])
    assert {None} == {model["requests_per_s"] for model in document["models"]}
    refused = get(gateway, HISTORY)
    assert (501, {"error": "--allow-metrics=false"}) == (refused.status_code, refused.json)


def test_a_model_that_waits_for_a_request_is_asleep() -> None:
    models = {model["name"]: model for model in get(Gateway(), STATUS).json["models"]}

    assert [True, False, False] == [models[name]["is_asleep"] for name in sorted(models)]
    assert (2, 3, 7, 1) == tuple(
        models["good"][key] for key in ("pending", "in_flight", "succeeded", "failed")
    )


def test_each_model_has_its_counts_and_rates_and_null_where_they_are_unknown() -> None:
    gateway = Gateway()
    rates = {"requests_per_s": 0.5, "failures_per_s": 0.25}
    keys = ("pending", "succeeded", "requests_per_s", "failures_per_s")

    def figures() -> list[list[Any]]:
        models = get(gateway, STATUS).json["models"]
        return [[model[key] for key in keys] for model in models if model["name"] != "asleep"]

    assert [[2, 7, 0.0, 0.0], [None] * 4] == figures()
    gateway.answers["latest"]["rates"] = {"good:1": rates, "other:1": rates}
    assert [[2, 7, 0.5, 0.25], [None, None, 0.5, 0.25]] == figures()

    # When the broker does not answer
    gateway.answers["status"] = {**FOUND, "counts": None}
    assert [[None, None, 0.5, 0.25]] * 2 == figures()


def test_a_model_that_serves_has_its_trouble_in_a_line() -> None:
    gateway = Gateway()
    counted = {**FOUND["counts"][0], "oldest_execution_ns": 12_000_000_000}
    pace = {"model": "good", "quota": "max_executions_per_second", "limit": 0.5}

    def troubles() -> list[str]:
        return [model["trouble"] for model in get(gateway, STATUS).json["models"]]

    assert ["", "", ""] == troubles()
    gateway.answers["status"] = {**FOUND, "counts": [counted]}
    said = "an execution takes 12 s already, and no request is answered meanwhile; 2 in the queue"
    assert ["", said, ""] == troubles()
    gateway.answers["status"] = {**FOUND, "quotas": [pace]}
    assert "its quota holds 2 requests back: max_executions_per_second is 0.5" == troubles()[1]

    # When nothing is known of its rates
    gateway.answers["latest"]["rates"] = None
    assert ["", "", ""] == troubles()


@pytest.mark.parametrize(
    ("settings", "may_load", "may_restart"),
    [
        ({}, False, False),
        ({"model_control_mode": "explicit"}, True, True),
        ({"http_restricted_api": (Restriction(("steering",), "k", "v"),)}, False, True),
    ],
)
def test_it_says_what_clients_may_do(
    settings: dict[str, Any], may_load: bool, may_restart: bool
) -> None:
    server = get(Gateway(**settings), STATUS).json["server"]

    assert (may_load, may_restart) == (server["may_load"], server["may_restart"])


@pytest.mark.parametrize("category", ["status", "statistics"])
def test_the_key_of_statistics_guards_it_too(category: str) -> None:
    gateway = Gateway(http_restricted_api=(Restriction((category,), "k", "v"),))

    for path in (STATUS, HISTORY):
        assert 403 == get(gateway, path).status_code
        assert 200 == get(gateway, path, k="v").status_code


@pytest.fixture
def tokens(tmp_path: Path) -> str:
    """For `good` alone: one that controls, and one that infers. And one that controls all."""
    path = tmp_path / "tokens"
    grants = [
        Grant(scope, token_file.Grant.digest_of(scope), frozenset({scope}), ("good",))
        for scope in ("control", "infer")
    ]
    grants.append(Grant("every", token_file.Grant.digest_of("every"), frozenset({"control"})))
    path.write_text("".join(f"{grant.line()}\n" for grant in grants))
    path.chmod(0o600)
    return str(path)


def test_a_token_for_some_models_shows_those(tokens: str) -> None:
    gateway = Gateway(tokens=tokens, model_control_mode="explicit")
    token = {"authorization": "Bearer infer"}

    document = get(gateway, STATUS, **token).json

    assert [None, "good"] == [process.get("model") for process in document["processes"]]
    assert ["good"] == [model["name"] for model in document["models"]]
    assert not {"repositories", "environments"} & {key for key in document if document[key]}
    assert (False, False) == (document["server"]["may_load"], document["server"]["may_restart"])
    get(gateway, HISTORY, **token)
    _, arguments = gateway.calls[-1]
    assert ("good",) == arguments["visible_models"]


def test_a_token_for_some_models_shows_no_places(tokens: str) -> None:
    gateway = Gateway(tokens=tokens)
    died = {"last_reason": "no file /models/good/1/data", "why": {"values": {"path": "/run/s/x"}}}
    supervisor, good, *others = FOUND["processes"]
    reader = {**PROCESS, "role": "reader", "pid": 5, "state": "reads the list of /models"}
    processes = [{**supervisor, **died}, {**good, **died}, *others, reader]
    gateway.answers["status"] = {**FOUND, "processes": processes}
    entry = {"name": "good", "version": "2", "state": "UNAVAILABLE"}
    gateway.answers["index"] = [*INDEX, {**entry, "reason": "no file '/models/good/2/model.py'"}]

    document = get(gateway, STATUS, authorization="Bearer control").json

    shown = {"id": "s", "version": "1.0", "commit": "abc"}
    assert {**shown, "ready": "1 of 2 model versions are ready"} == {
        key: document["server"][key]
        for key in ("id", "version", "commit", "directory", "addresses", "ready")
        if key in document["server"]
    }
    first, second = document["processes"]
    assert ("", {}) == (first["last_reason"], first["why"])
    assert ("no file good/1/data", {"values": {"path": "x"}}) == (
        second["last_reason"],
        second["why"],
    )
    assert "no file 'good/2/model.py'" == document["models"][1]["reason"]
    everything = get(gateway, STATUS, authorization="Bearer every").json
    assert FOUND["server"].items() <= everything["server"].items()
    assert 5 == len(everything["processes"])


def test_the_log_is_for_those_who_control_all_models(tokens: str) -> None:
    gateway = Gateway(tokens=tokens)

    statuses = [
        get(gateway, f"{LOGS}?model=good", authorization=f"Bearer {token}").status_code
        for token in ("every", "control", "infer")
    ]

    assert [200, 403, 403] == statuses


def test_the_log_is_closed_to_other_machines_unless_it_is_guarded() -> None:
    refused = get(Gateway(), LOGS)
    assert 403 == refused.status_code
    assert "--http-restricted-api=logs:KEY=VALUE" in refused.json["error"]

    of_others = Gateway(http_restricted_api=(Restriction(("statistics",), "k", "v"),))
    assert 403 == get(of_others, LOGS, k="v").status_code
    assert 200 == get(Gateway(http_bound_address="127.0.0.1"), LOGS).status_code
    for category in ("logs", "logging"):
        guarded = Gateway(http_restricted_api=(Restriction((category,), "k", "v"),))
        assert 403 == get(guarded, LOGS).status_code
        assert 200 == get(guarded, LOGS, k="v").status_code


def test_lines_of_the_log_are_chosen() -> None:
    gateway = Gateway(http_bound_address="127.0.0.1")

    document = get(gateway, f"{LOGS}?since=7&lines=2").json
    assert ["8", "9"] == [line["text"] for line in document["lines"]]

    get(gateway, f"{LOGS}?model=good&after=3&lines=5")
    assert ("logs", {"model": "good", "after": 3, "lines": 5}) == gateway.calls[-1]


@pytest.mark.parametrize(
    "path",
    [
        *(f"{HISTORY}?seconds={text}" for text in ("x", "-1", "nan", "inf", "1e99", "5&seconds=5")),
        *(f"{LOGS}?{text}" for text in ("lines=many", "lines=0", "since=1&lines=0", "lines=1e16")),
    ],
)
def test_what_is_no_number_is_refused(path: str) -> None:
    refused = get(Gateway(http_bound_address="127.0.0.1"), path)

    assert 400 == refused.status_code, refused.json


def _last_error(gateway: Gateway, **headers: str) -> Any:
    error = {"text": "no such user: Ann", "at_s": 1.0}
    (row,) = json.loads(json.dumps(FOUND["counts"]))
    gateway.answers["status"] = {**FOUND, "counts": [{**row, "last_error": error}]}
    document = get(gateway, STATUS, **headers).json
    (model,) = [model for model in document["models"] if model["name"] == "good"]
    assert model["last_error"] == document["counts"][0].get("last_error")
    return model["last_error"]


def test_the_last_error_of_a_model_is_shown_where_the_log_may_be_read(tokens: str) -> None:
    assert _last_error(Gateway()) is None
    assert "no such user: Ann" == _last_error(Gateway(http_bound_address="127.0.0.1"))["text"]

    guarded = Gateway(
        http_bound_address="127.0.0.1", http_restricted_api=(Restriction(("logs",), "k", "v"),)
    )
    assert _last_error(guarded) is None
    for token, is_shown in (("every", True), ("control", True), ("infer", False)):
        error = _last_error(Gateway(tokens=tokens), authorization=f"Bearer {token}")
        assert is_shown == (error is not None)
