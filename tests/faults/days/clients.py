"""The server of a day, its models, and its clients."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tritonclient.utils import InferenceServerException

from tests.faults.days import later_clients
from tests.faults.days.world import FORKED, GUEST, STAMPED, THREADED, World
from tests.faults.mixed_clients import (
    KINDS,
    Client,
    HttpClient,
    ReloadClient,
    WrongAnswerError,
    mixed_clients,
)
from tests.support.failing import FailingCalls
from tests.support.scripted import extend_config, string_parameter
from tests.support.server import Server

MODELS = ("twice_journal", "tokens", "sequences", "add_sub")
#: Asks the model that keeps the journal, and keeps one, too.
_ASKING = """
import json, os, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        path = json.loads(args["model_config"])["parameters"]["JOURNAL"]["string_value"]
        self._journal = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def execute(self, requests):
        return [self._ask(request) for request in requests]

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
        environment=calls.environment,
        options=[
            *of_mode[mode],
            *later_clients.OPTIONS,
            "--http-workers=2",
            f"--runtime-directory={directory / 'run'}",
        ],
    )
    for name in (STAMPED, GUEST, "asking", FORKED, THREADED):
        server.add_model("steered", name)
    for name, kind in ((FORKED, "forks"), (THREADED, "threads")):
        extend_config(server, name, string_parameter("INSTANCES", kind))
    (server.repository / "asking" / "1" / "model.py").write_text(_ASKING)
    later_clients.add_models(server)
    # a number that is said, since a change of the configuration says one, too
    path = server.repository / "sequences" / "config.pbtxt"
    path.write_text(path.read_text().replace("{ kind: KIND_CPU }", "{ count: 1 kind: KIND_CPU }"))
    counts = {STAMPED: 2, GUEST: 2, "asking": 2, "tokens": 1, "sequences": 1}
    counts |= {FORKED: 2, THREADED: 2}
    return server, counts | later_clients.INSTANCES


class UnchangedClient(HttpClient):
    """Asks a model whose code never changes."""

    def check_stamp(self, stamp: int | None) -> None:
        """It has the first one."""


class ForkedClient(UnchangedClient):
    model = FORKED


class ThreadedClient(UnchangedClient):
    model = THREADED


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
    kinds += [*later_clients.KINDS, (VisitorClient, 1), (ForkedClient, 2), (ThreadedClient, 3)]
    with mixed_clients(world.server, kinds, world.stamps) as clients:
        yield clients
