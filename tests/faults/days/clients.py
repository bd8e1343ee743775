"""The server of a day, its models, and its clients."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from tritonclient.utils import InferenceServerException

from tests.faults.days.world import FORKED, GUEST, MANY, STAMPED, THREADED, World
from tests.faults.mixed_clients import (
    KINDS,
    TOKENS,
    Client,
    HttpClient,
    ReloadClient,
    StreamClient,
    WrongAnswerError,
    check_same,
    mixed_clients,
)
from tests.support.failing import FailingCalls
from tests.support.journal import journal_inputs
from tests.support.scripted import extend_config, string_parameter
from tests.support.server import Server
from zmqtriton_extras.jobs.tests.batches.requests import CHAT, FORM_TYPE, form_of, line

#: Whose jobs run once, and whose may run again when they were lost; one with a route.
ONCE, AGAIN, ROUTED = "later", "again", "routed"
OPTIONS = ("--jobs", "--routes", "--allow-openai")
_WITHIN_S, _LOOK_S, _MOST_TIMES = 120.0, 0.05, 100
_UNDER_WAY = ("queued", "running")
_BATCH_UNDER_WAY = ("validating", "in_progress", "finalizing")
_LINES = 20
_INTERRUPTED = "while the job ran"
_ROUTES = """
import json, os, time
from zmqtriton.routes import route

JOURNAL = os.open(@JOURNAL@, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

@route("POST /ask/{name}")
async def ask(request, infer):
    name = request.params["name"]
    record = {"event": "ask", "id": name, "pid": os.getpid(), "ns": time.monotonic_ns()}
    os.write(JOURNAL, json.dumps(record).encode() + b"\\n")
    response = await infer({"ID": [[name]], "MS": [[5]]})
    return {"id": response["ID"].ravel()[0].decode()}
"""
MANY_STREAMS = """
import time
from typing import List, Optional
from zmqtriton import End, model

@model(streams=16, budget=4)
class Many:
    def cost(self, name: str, pieces: int) -> int:
        return 1

    def admit(self, name: str, pieces: int) -> dict:
        return {"name": name, "number": 0, "pieces": pieces}

    def step(self, states: list) -> List[Optional[str]]:
        time.sleep(0.001)
        return [self.next(state) for state in states]

    def next(self, state):
        text = f"{state['name']} {state['number']}"
        state["number"] += 1
        return text if state["number"] < state["pieces"] else End(text)
"""
MODELS = ("twice_journal", "tokens", "sequences", "add_sub")
#: Asks the model that keeps the journal, and keeps one, too; each other time from threads.
_ASKING = """
import concurrent.futures, json, os, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        path = json.loads(args["model_config"])["parameters"]["JOURNAL"]["string_value"]
        self._journal = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._threads, self._count = concurrent.futures.ThreadPoolExecutor(2), 0

    def execute(self, requests):
        self._count += 1
        ask_all = map if self._count % 2 else self._threads.map
        return list(ask_all(self._ask, requests))

    def finalize(self):
        self._threads.shutdown()

    def _ask(self, request):
        name = pb_utils.get_input_tensor_by_name(request, "ID").as_numpy().ravel()[0].decode()
        record = {"event": "ask", "id": name, "pid": os.getpid(), "ns": time.monotonic_ns()}
        os.write(self._journal, json.dumps(record).encode() + b"\\n")
        asked = pb_utils.InferenceRequest(
            model_name="journal", requested_output_names=["ID", "STAMP"], inputs=request.inputs()
        )
        response = asked.exec()
        if response.has_error():
            return pb_utils.InferenceResponse(error=response.error())
        return pb_utils.InferenceResponse(output_tensors=response.output_tensors())
"""


def make_server(directory: Path, calls: FailingCalls, mode: str) -> tuple[Server, dict[str, int]]:
    """Return a server that is not started, and the instances of the models that are steered."""
    of_mode = {
        "explicit": ("--model-control-mode=explicit", "--load-model=*"),
        "poll": ("--model-control-mode=poll", "--repository-poll-secs=1"),
    }
    server = Server(
        directory,
        models=MODELS,
        environment={**calls.environment, "ZT_POISON": "1"},
        options=[
            *of_mode[mode],
            *OPTIONS,
            "--http-workers=2",
            f"--runtime-directory={directory / 'run'}",
        ],
    )
    for name in (STAMPED, GUEST, "asking", FORKED, THREADED):
        server.add_model("steered", name)
    for name, kind in ((FORKED, "forks"), (THREADED, "threads")):
        extend_config(server, name, string_parameter("INSTANCES", kind))
    (server.repository / "asking" / "1" / "model.py").write_text(_ASKING)
    _add_models(server)
    # a number that is said, since a change of the configuration says one, too
    server.edit_config("sequences", "{ kind: KIND_CPU }", "{ count: 1 kind: KIND_CPU }")
    server.write_model(MANY, "instance_group [ { count: 2 kind: KIND_CPU } ]\n", MANY_STREAMS)
    counts = {STAMPED: 2, GUEST: 2, "asking": 2, "tokens": 1, "sequences": 1, MANY: 2}
    counts |= {FORKED: 2, THREADED: 2, ONCE: 1, AGAIN: 1, ROUTED: 1, f"{ROUTED}.routes": 1}
    return server, counts


def _add_models(server: Server) -> None:
    for name in (ONCE, AGAIN, ROUTED):
        server.add_model("journal", name)
    extend_config(server, AGAIN, string_parameter("JOBS_REPEAT", "true"))
    server.add_model("parrot")
    code = _ROUTES.replace("@JOURNAL@", repr(str(server.journal)))
    (server.repository / ROUTED / "1" / "routes.py").write_text(code)


class JobClient(HttpClient):
    """One job after the other; one that was promised must end, whatever is killed meanwhile."""

    model, frontend = ONCE, "jobs"

    def ask(self) -> None:
        own_id = self.new_id(1 if self.model == ONCE else _MOST_TIMES)
        headers = {"Prefer": "respond-async", "Idempotency-Key": own_id, **self.headers}
        path, body = f"/v2/models/{self.model}/infer", {"inputs": journal_inputs(own_id, 5)}
        job = self._insist("POST", path, 202, json.dumps(body), headers)["id"]
        while (state := self._insist("GET", f"/v2/jobs/{job}", 200))["state"] in _UNDER_WAY:
            self._wait(own_id)
        self._insist("DELETE", f"/v2/jobs/{job}", 200, may_be_gone=True)
        if state["state"] != "succeeded":
            reason = f"{state.get('status', '')} {state['reason']}"
            lost = "lost connection to its process: " if _INTERRUPTED in reason else ""
            raise InferenceServerException(lost + reason, state["state"])
        self.check_outputs(state["response"]["outputs"])

    def _insist(self, *request: Any, **how: Any) -> Any:
        """Return the document that a request is answered with at last."""
        return json.loads(self._content(*request, **how))

    def _content(
        self,
        method: str,
        path: str,
        expected: int,
        body: str | bytes = "",
        headers: Mapping[str, str] | None = None,
        *,
        may_be_gone: bool = False,
    ) -> bytes:
        """Ask until it is answered; who may have been heard repeats it with its key."""
        while True:
            try:
                status, content = self.send(method, path, body or None, headers or self.headers)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                status, content = 0, repr(error).encode()
            if status == expected or (may_be_gone and status == 404):
                return content
            if status == 404:
                raise WrongAnswerError(f"{self.own_id} is lost: {path} {content!r}")
            self._wait(f"{method} {path}: {status} {content!r}")

    def _wait(self, what: str) -> None:
        if time.monotonic_ns() > self.sent_ns + _WITHIN_S * 1e9:
            raise TimeoutError(f"no end of {self.own_id}: {what}")
        time.sleep(_LOOK_S)


class RepeatedJobClient(JobClient):
    """The same of a model whose jobs may run again."""

    model = AGAIN


class BatchClient(JobClient):
    """One batch after the other, each of whose lines is answered once, maybe by an error."""

    model = "parrot"

    def ask(self) -> None:
        ids = [f"line {number}" for number in range(_LINES)]
        form = form_of(*(line(own_id) for own_id in ids))
        file = self._insist("POST", "/v1/files", 200, form, {**self.headers, **FORM_TYPE})["id"]
        fields = {"input_file_id": file, "endpoint": CHAT, "completion_window": "24h"}
        batch = self._insist("POST", "/v1/batches", 200, json.dumps(fields))
        while batch["status"] in _BATCH_UNDER_WAY:
            self._wait(f"{batch['id']}: {batch['status']}")
            batch = self._insist("GET", f"/v1/batches/{batch['id']}", 200)
        outputs = [batch[name] for name in ("output_file_id", "error_file_id") if batch[name]]
        rows = [
            json.loads(row)
            for own_id in outputs
            for row in self._content("GET", f"/v1/files/{own_id}/content", 200).splitlines()
        ]
        if batch["status"] != "completed" or sorted(ids) != sorted(r["custom_id"] for r in rows):
            raise WrongAnswerError(f"{batch} has {rows}")


class RouteClient(HttpClient):
    """Asks a model's own route, which asks the model."""

    model = f"{ROUTED}.routes"

    def ask(self) -> None:
        own_id = self.new_id()
        check_same({"id": own_id}, self.post(f"/models/{ROUTED}/ask/{own_id}", {}))


class UnchangedClient(HttpClient):
    """Asks a model whose code never changes."""

    def check_stamp(self, stamp: int | None) -> None:
        """It has the first one."""


class ForkedClient(UnchangedClient):
    model = FORKED


class ThreadedClient(UnchangedClient):
    model = THREADED


class ManyStreamsClient(StreamClient):
    """One stream after the other of a model that makes each step for many."""

    model = MANY

    def arrays(self) -> dict[str, Any]:
        return {"name": np.array([self.prefix], object), "pieces": np.array([TOKENS], np.int64)}

    def check_response(self, result: Any, count: int) -> None:
        check_same([f"{self.prefix} {count}".encode()], result.as_numpy("output").tolist())


class ManyEventsClient(HttpClient):
    """The same over HTTP."""

    model = MANY

    def ask(self) -> None:
        body = json.dumps({"name": self.prefix, "pieces": TOKENS})
        status, text = self.send("POST", f"/v2/models/{MANY}/generate_stream", body, self.headers)
        lines = [line for line in text.decode().splitlines() if line.startswith(("data: ", "{"))]
        events = [json.loads(line.removeprefix("data: ")) for line in lines]
        check_same([], [each for each in events[:-1] if "error" in each])
        if "error" in events[-1]:
            raise InferenceServerException(events[-1]["error"], str(status))
        expected = [f"{self.prefix} {number}" for number in range(TOKENS)]
        check_same(expected, [each["output"] for each in events])


class VisitorClient(UnchangedClient):
    """Asks a model that comes and goes."""

    model = GUEST
    world: World

    def ask(self) -> None:
        is_there = True
        try:
            super().ask()
        except InferenceServerException as error:
            if error.status() not in ("400", "404") and "was unloaded" not in error.message():
                raise
            is_there, absence = False, error
        if is_there not in self.world.is_present.allowed(self.sent_ns, time.monotonic_ns()):
            raise (
                WrongAnswerError("answered by a model that is not loaded") if is_there else absence
            )


@contextmanager
def steered_clients(world: World) -> Iterator[list[Client]]:
    """Run clients of all kinds; each is to be answered whatever the server is asked to do."""
    kinds = [
        (kind, count)
        for kind, count in KINDS
        if world.mode == "explicit" or kind is not ReloadClient
    ]
    VisitorClient.world = world
    kinds += [(JobClient, 2), (RepeatedJobClient, 1), (BatchClient, 1), (RouteClient, 1)]
    kinds += [(VisitorClient, 1), (ForkedClient, 2), (ThreadedClient, 3)]
    kinds += [(ManyStreamsClient, 4), (ManyEventsClient, 4)]
    with mixed_clients(world.server, kinds, world.stamps) as clients:
        yield clients
