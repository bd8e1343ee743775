"""Laws 4 to 6 over this repository, and all six over an add-on that a hurried author writes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.repo import laws
from tests.repo.sources import sources, tree_of
from tests.repo.test_documents import files

# ------------------------------------------------------------------------- the repository

_OPERATOR = "an operator's command, or its own process"
_RUN_DIRECTORY = "the server's own directory, which the next start removes"
#: Modules that make temporary files with names.
NAMED_FILES = {
    "zmqtriton.supervisor.machine.directories.runtime": _RUN_DIRECTORY,
    "zmqtriton_standard.environments.unpack": _OPERATOR,
    "zmqtriton.diagnosis.rules.certificates": _OPERATOR,
    "zmqtriton_extras.fleet.serve.command": _OPERATOR,
    "zmqtriton_extras.functions.checking": _OPERATOR,
    "zmqtriton_extras.functions.backend.media": "for copies in a Triton that makes no directories",
    "zmqtriton_extras.pytriton.__main__": _OPERATOR,
    "zmqtriton_extras.tuning.command": _OPERATOR,
    "zmqtriton_extras.pytriton.utils.workspace": "a script's own workspace, as PyTriton's",
}
#: Modules with a task that they do not read themselves.
TASKS = {
    "zmqtriton_frontends.grpc_api.transport.call_kinds": "NativeCall ends it",
    "zmqtriton_extras.routes.backend.asgi": "the application's life, which the loop's end ends",
    "zmqtriton_extras.routes.backend.model": "ends when no route is active",
    "zmqtriton_extras.tritonserver.responses": "ends with the responses",
}
_OF_STORES = "the process of stores, whose only client is the supervisor"
_OF_FLEET = "programs of a fleet, which serve no requests"
_AT_A_TIME = "one at a time, for the server itself"
_IN_MODEL = "the model's process, in which a route has 256 threads at most"
#: Modules that give work to other threads than Threads.
THREADS = {
    "zmqtriton_frontends.tensors.payload": "an import, once",
    "zmqtriton_standard.history.sampler": _AT_A_TIME,
    "zmqtriton_standard.metrics.machine": _AT_A_TIME,
    "zmqtriton_extras.canaries.requests": "one at a time, and copies have a limit of bytes",
    "zmqtriton_extras.capture.replaying": _OPERATOR,
    "zmqtriton_extras.fleet.announcing.announcer": _OF_FLEET,
    "zmqtriton_extras.fleet.proxies.following": _OF_FLEET,
    "zmqtriton_extras.fleet.serve.replica": _OF_FLEET,
    "zmqtriton_extras.fleet.servers.rolling": _OF_FLEET,
    "zmqtriton_extras.pytriton.client.client": "a client",
    "zmqtriton_extras.routes.backend.answers": _IN_MODEL,
    "zmqtriton_extras.routes.backend.model": _IN_MODEL,
    "zmqtriton_extras.storage.__main__": _OF_STORES,
    "zmqtriton_extras.storage.file_stores": _OF_STORES,
    "zmqtriton_extras.storage.mirror": _OF_STORES,
}
_OF_PROCESS = "as long as its process"
_BRIEF = "once, within a second or some"
#: Files that meet clients, with timers and threads that nothing ends.
TIMERS = {
    "access/bearer_tokens.py": _OF_PROCESS,
    "gateway/broker_link.py": _OF_PROCESS,
    "gateway/streams.py": _OF_PROCESS,
    "transport/call_kinds.py": _BRIEF,
    "server/channel.py": _BRIEF,
    "process/own_threads.py": "Threads",
    "access_log/process.py": _OF_PROCESS,
    "backend/streams.py": _OF_PROCESS,
    "process/store_thread.py": _OF_PROCESS,
    "backend/model.py": _OF_PROCESS,
}
_DIGITS = "digits that a pattern has counted"
_OWN = "a number of our own, of the kernel or of a message of this server"
_CONFIG = "options, and parameters of models"
_FOR_MODEL = "for the model, or of its answer"
#: Files that meet clients, with numbers that they make themselves.
NUMBERS = {
    "access/bearer_tokens.py": _OWN,
    "functions/interface.py": _CONFIG,
    "gateway/token_marks.py": _CONFIG,
    "gateway/trace_settings.py": _DIGITS,
    "transport/call_headers.py": _DIGITS,
    "transport/grpcio_server.py": "the grpc library's own numbers",
    "zmqtriton_frontends/http1.py": _DIGITS,
    "http2/budget.py": _OWN,
    "http2/connection.py": _DIGITS,
    "asgi/request.py": _DIGITS,
    "inference/json_documents.py": _FOR_MODEL,
    "inference/tensor_data.py": _DIGITS,
    "inference/catalogue.py": _DIGITS,
    "inference/classification.py": _FOR_MODEL,
    "server/asgi_exchange.py": _OWN,
    "server/channel.py": _OWN,
    "server/service.py": _OWN,
    "serving/process.py": _OWN,
    "process/codecs.py": "the order of codings",
    "process/memory.py": _OWN,
    "process/peer_user.py": _OWN,
    "process/lines.py": _OWN,
    "process/room.py": _OWN,
    "process/running.py": _CONFIG,
    "process/store.py": _OWN,
    "process/uploads.py": _DIGITS,
    "batches/routes.py": _DIGITS,
    "clouds/variables.py": _CONFIG,
    "door/messages.py": _OWN,
    "jobs/metrics.py": _OWN,
    "openai/choices.py": _FOR_MODEL,
    "openai/fields.py": "Range, which refuses NaN and what is out of range",
    "streams/model.py": _CONFIG,
    "token_metrics/allowances.py": _CONFIG,
    "web_sockets/stream.py": _OWN,
    "webhooks/posting.py": _DIGITS,
    "webhooks/receivers.py": _DIGITS,
}


def _modules(law: object) -> set[str]:
    assert callable(law)
    return {source.module for source in sources() if law(source.tree)}


def _files(law: object) -> set[str]:
    assert callable(law)
    return {name for name, path in files() if law(tree_of(path))}


def test_files_of_a_request_have_no_names() -> None:
    assert {*NAMED_FILES} == _modules(laws.named_files)


def test_tasks_have_owners() -> None:
    assert {*TASKS} == _modules(laws.unowned_tasks)


def test_timers_and_threads_for_clients_have_owners() -> None:
    assert {*TIMERS} == _files(laws.unowned_timers)


def test_long_work_has_threads_with_a_bound() -> None:
    assert {*THREADS} == _modules(laws.unbounded)


def test_numbers_of_clients_are_checked() -> None:
    assert {*NUMBERS} == _files(laws.unchecked)


# ----------------------------------------------------------------------------- each law

_BROKEN = {
    1: "json.loads(text)\norjson.dumps(a)\njson.load(file)\nread(orjson.loads, text)",
    2: "f'got {value!r}'\ntext = repr(value)\nraise Error(f'bad {body[:9]}')",
    3: "import socket\ns.accept()\nsocket.create_server(())\ns.listen(4)",
    4: "mkstemp()\ncreate_task(f())\ntask = create_task(f())\ncall_later(1, f)\nThread(target=f)\n"
    "x = create_task(f())\nx.add_done_callback(g)\nlambda: ensure_future(f())",
    5: "to_thread(f)\nloop.run_in_executor(None, f)\nThreadPoolExecutor(4)",
    6: "float(text)\nint(document['n'])\nfloat(req.get_param('n'))",
}
_KEPT = """
from zmqtriton.sdk.process import ToolListener
import socket
s.listen(4)
raise Error(f'{name} is {described(value)}')
TemporaryFile()
self.task = create_task(f())
self.task.cancel()
tasks[1] = create_task(f())
await create_task(f())
tasks.add(ensure_future(f()))
int(len(text))
float(size / 2)
"""


@pytest.mark.parametrize("law", _BROKEN)
def test_each_way_to_break_a_law_is_found(law: int) -> None:
    lines = _BROKEN[law].splitlines()
    numbers = laws.LAWS[law](ast.parse(_BROKEN[law]))

    ways = [line for line in lines if not line.startswith(("import", "x.add"))]
    assert ways == [lines[number - 1] for number in sorted({*numbers})]


def test_what_keeps_the_laws_passes() -> None:
    assert [] == [law for law, lines in laws.LAWS.items() if lines(ast.parse(_KEPT))]


# ------------------------------------------------------------------------- six attempts

#: The parts of a room's code, each with the hurried way that breaks its law.
HONEST = """
import socket
import tempfile
import time

from zmqtriton.sdk.frontend import HttpExtension, Route, Tasks, Threads, json_documents
from zmqtriton.sdk.process import ToolListener
from zmqtriton.sdk.wire import InvalidArgument, described, numbers

threads, tasks = Threads("echo", 1), Tasks()


def wait_for_editor(path, head):
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(path)
        bound.listen()
        return ToolListener(bound, [0], head).admit(time.monotonic() + 60)


def kept(body):
    file = tempfile.TemporaryFile()
    file.write(body)
    return file


async def keep(body):
    return await threads.run(kept, body)


async def echo(req, resp):
    body = await req.read_body(1 << 20)
    fields = await json_documents.read(req.hold, body, json_documents.parse)
    if type(fields) is not dict:
        raise InvalidArgument(f"expected an object, got {described(fields)}")
    times = numbers.integer("times", fields.get("times", 1), 1, 1000)
    file = await tasks.begin(keep(body))
    file.seek(0)
    resp.data = file.read() * times
    file.close()


EXTENSION = HttpExtension(lambda gateway: [Route("POST", "/echo", "inference", echo)])
"""
DECLARATION = """
from zmqtriton.sdk import AddOn

ADDON = AddOn("echo", offers={"http.extension": ".parts:EXTENSION"})
"""
ATTEMPTS = {
    1: [("await json_documents.read(req.hold, body, json_documents.parse)", "json.loads(body)")],
    2: [("got {described(fields)}", "got {body!r}")],
    3: [
        ("ToolListener(bound, [0], head).admit(time.monotonic() + 60)", "bound.accept()"),
        ("from zmqtriton.sdk.process import ToolListener\n", ""),
    ],
    4: [("tempfile.TemporaryFile()", "open(tempfile.mkstemp()[0], 'w+b')")],
    5: [("threads.run(kept, body)", "asyncio.to_thread(kept, body)")],
    6: [
        ('numbers.integer("times", fields.get("times", 1), 1, 1000)', 'int(fields.get("times", 1))')
    ],
}


def write_room(place: Path, *changes: tuple[str, str]) -> Path:
    """Write the package of the room, with changes of its code."""
    text = HONEST
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    room = place / "echo"
    room.mkdir(parents=True)
    (room / "__init__.py").write_text(DECLARATION)
    (room / "parts.py").write_text(text)
    return room


def test_an_honest_room_keeps_all_laws(tmp_path: Path) -> None:
    assert set() == laws.broken(write_room(tmp_path))


@pytest.mark.parametrize("law", ATTEMPTS)
def test_an_attempt_to_break_a_law_is_found(tmp_path: Path, law: int) -> None:
    assert {law} == laws.broken(write_room(tmp_path, *ATTEMPTS[law]))


def test_a_task_without_an_owner_is_found(tmp_path: Path) -> None:
    change = "file = await tasks.begin(keep(body))", "asyncio.create_task(keep(body))"

    assert {4} == laws.broken(write_room(tmp_path, change))
