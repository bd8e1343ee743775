"""Clients of a day whose answers come later, or from a model's own route."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any

from tests.addons.batches.requests import CHAT, FORM_TYPE, form_of, line
from tests.faults.mixed_clients import RIGHT, HttpClient, HungError, WrongAnswerError
from tests.support.server import Server

#: Whose jobs run once, and whose may run again when they were lost; one with a route.
ONCE, AGAIN, ROUTED = "later", "again", "routed"
#: What is added to a day's server, and the instances that it has then.
OPTIONS = ("--jobs", "--routes", "--allow-openai")
INSTANCES = {ONCE: 1, AGAIN: 1, ROUTED: 1, f"{ROUTED}.routes": 1}
_WITHIN_S, _LOOK_S, _MOST_TIMES = 120.0, 0.05, 100
_UNDER_WAY = ("queued", "running")
_BATCH_UNDER_WAY = ("validating", "in_progress", "finalizing")
_LINES = 20
_REPEAT = 'parameters { key: "JOBS_REPEAT" value { string_value: "true" } }\n'
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


def add_models(server: Server) -> None:
    for name in (ONCE, AGAIN, ROUTED):
        server.add_model("journal", name)
    with (server.repository / AGAIN / "config.pbtxt").open("a") as config:
        config.write(_REPEAT)
    server.add_model("parrot")
    code = _ROUTES.replace("@JOURNAL@", repr(str(server.journal)))
    (server.repository / ROUTED / "1" / "routes.py").write_text(code)


class JobClient(HttpClient):
    """One job after the other; one that was promised must end, whatever is killed meanwhile."""

    model, frontend = ONCE, "jobs"

    def ask(self) -> str:
        own_id = self.new_id(1 if self.model == ONCE else _MOST_TIMES)
        tensors = [
            {"name": "ID", "datatype": "BYTES", "shape": [1, 1], "data": [own_id]},
            {"name": "MS", "datatype": "INT32", "shape": [1, 1], "data": [5]},
        ]
        headers = {"Prefer": "respond-async", "Idempotency-Key": own_id, **self.headers}
        path, body = f"/v2/models/{self.model}/infer", json.dumps({"inputs": tensors})
        job = self._insist("POST", path, 202, body, headers)["id"]
        while (state := self._insist("GET", f"/v2/jobs/{job}", 200))["state"] in _UNDER_WAY:
            self._wait(own_id)
        self._insist("DELETE", f"/v2/jobs/{job}", 200, may_be_gone=True)
        if state["state"] == "succeeded":
            return self.check_outputs(state["response"]["outputs"])
        self.reason = f"{state.get('status', '')} {state['reason']}"
        if _INTERRUPTED in self.reason:
            self.reason = f"lost connection to its process: {self.reason}"
        return str(state["state"])

    def _insist(
        self,
        method: str,
        path: str,
        expected: int,
        body: str | bytes = "",
        headers: dict[str, str] | None = None,
        *,
        may_be_gone: bool = False,
    ) -> Any:
        """Ask until it is answered; who may have been heard repeats it with its key."""
        while True:
            try:
                status, answer = self._once(method, path, body, headers or self.headers)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                status, answer = 0, repr(error)
            if status == expected or (may_be_gone and status == 404):
                return answer
            if status == 404:
                raise WrongAnswerError(f"{self.own_id} is lost: {path} {answer}")
            self._wait(f"{method} {path}: {status} {answer}")

    def _wait(self, what: str) -> None:
        if time.monotonic_ns() > self.sent_ns + _WITHIN_S * 1e9:
            raise HungError(f"no end of {self.own_id}: {what}")
        time.sleep(_LOOK_S)

    def _once(
        self, method: str, path: str, body: str | bytes, headers: dict[str, str]
    ) -> tuple[int, Any]:
        if self._connection is None:
            port = self.server.http_port
            self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_WITHIN_S)
        self._connection.request(method, path, body or None, headers)
        answer = self._connection.getresponse()
        text = answer.read() or b"{}"
        if path.endswith("/content") and answer.status == 200:
            return 200, [json.loads(line) for line in text.splitlines()]
        return answer.status, json.loads(text)


class RepeatedJobClient(JobClient):
    """The same of a model whose jobs may run again."""

    model = AGAIN


class BatchClient(JobClient):
    """One batch after the other, each of whose lines is answered once, maybe by an error."""

    model = "parrot"

    def ask(self) -> str:
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
            row
            for own_id in outputs
            for row in self._insist("GET", f"/v1/files/{own_id}/content", 200)
        ]
        if batch["status"] != "completed" or sorted(ids) != sorted(r["custom_id"] for r in rows):
            raise WrongAnswerError(f"{batch} has {rows}")
        return RIGHT


class RouteClient(HttpClient):
    """Asks a model's own route, which asks the model."""

    model = f"{ROUTED}.routes"

    def ask(self) -> str:
        own_id = self.new_id()
        status, answer = self.post(f"/models/{ROUTED}/ask/{own_id}", {})
        if status != 200:
            return str(status)
        if answer != {"id": own_id}:
            raise WrongAnswerError(f"{answer} for {own_id}")
        return RIGHT


KINDS = ((JobClient, 2), (RepeatedJobClient, 1), (BatchClient, 1), (RouteClient, 1))
