"""A client's document has one door, and refusals have no values.

JSON is read and written by `zmqtriton_floor.documents` and `json_documents`, which count it, have
threads for it and give way meanwhile. A file below that reads or writes JSON itself has a reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.repo.laws import past_the_door, shown_values
from tests.repo.sources import files_below, tree_of
from tests.support.needs import ROOT

#: The code that meets what clients send: in frontends, in processes of add-ons and in models'.
ROOMS = (
    "frontends/zmqtriton_frontends",
    *(f"standard/zmqtriton_standard/{room}" for room in ("access_log", "cockpit", "generate")),
    *(
        f"extras/zmqtriton_extras/{room}"
        for room in ("clouds", "door", "functions", "jobs", "openai", "routes", "web_sockets")
    ),
)
_OURS = "messages of processes of this server"
_CONFIG = "configurations and settings"
_LIMITED = "texts of at most some KiB"
_WRITER = "writes documents of its own form, from texts of models"
_MODEL = "texts of the model that answers"
#: Files that read or write JSON, or show values, and what they read or write.
ALLOWED = {
    "access_log/process.py": _OURS,
    "access_log/refusals.py": _OURS,
    "gateway/control_calls.py": _OURS,
    "gateway/token_marks.py": _OURS,
    "serving/connections.py": _OURS,
    "serving/page_server.py": "an error of our own",
    "inference/load_metrics.py": _OURS,
    "inference/model_version.py": _CONFIG,
    "inference/json_documents.py": "the door",
    "http_api/app.py": "an error of our own",
    "generate/request.py": "keys of a text below 64 KiB; pieces of parameters",
    "functions/interface.py": _CONFIG,
    "functions/example_requests.py": _CONFIG,
    "functions/checking.py": _OURS,
    "backend/signature.py": _CONFIG,
    "streams/model.py": _CONFIG,
    "backend/documents.py": "pieces of answers",
    "backend/model.py": _CONFIG,
    "backend/answers.py": "answers of the model's own code",
    "backend/asgi.py": _CONFIG,
    "routes/process.py": _CONFIG,
    "routes/forwarding.py": "heads, which have a limit",
    "routes/testing.py": "tests of users",
    "jobs/messages.py": _OURS,
    "jobs/routes.py": "texts of at most 64 KiB, and messages of this server",
    "process/clients.py": "headers, which have a limit",
    "process/execution.py": "headers, and errors of some KiB",
    "process/lines.py": "lines with a limit, in a thread",
    "process/results.py": "rows that the process has written",
    "process/room.py": "rows that the process has written",
    "process/tables.py": "rows that the process has written",
    "webhooks/sending.py": _OURS,
    "batches/routes.py": _LIMITED,
    "openai/call_text.py": _MODEL,
    "openai/calls.py": "lists of models",
    "openai/choices.py": _MODEL,
    "openai/documents.py": _WRITER,
    "openai/embeddings.py": _WRITER,
    "openai/fields.py": "the values that a field takes",
    "openai/formats.py": _MODEL,
    "openai/json_inputs.py": "examples",
    "openai/problems.py": "errors, which have a limit",
    "openai/realtime.py": _WRITER,
    "openai/request_tensors.py": "pieces of members of a document",
    "openai/responses.py": _WRITER,
    "openai/transcriptions.py": _WRITER,
    "openai/tensor_names.py": _CONFIG,
    "templates/__init__.py": _CONFIG,
    "templates/__main__.py": "a process of its own, with a limit",
    "templates/children.py": "a process of its own, with a limit",
    "token_metrics/allowances.py": _OURS,
    "token_metrics/process.py": _OURS,
    "token_metrics/step.py": _OURS,
    "token_metrics/texts.py": _OURS,
    "web_sockets/stream.py": _LIMITED,
}


def files() -> Iterator[tuple[str, Path]]:
    for room in ROOMS:
        for path in files_below(ROOT / room):
            if "tests" not in path.parts and "examples" not in path.parts:
                yield f"{path.parent.name}/{path.name}", path


def test_documents_of_clients_are_read_and_written_by_the_door_alone() -> None:
    assert {name for name, path in files() if past_the_door(tree_of(path))} == {*ALLOWED}


_TRITON = "words of Triton, in quotes or cut at 64 letters"
_DEVELOPERS = "for developers, of their own names and hints"
#: Files whose errors show a text, and which.
SHOWING = {
    "gateway/trace_settings.py": _TRITON,
    "control/administration.py": _TRITON,
    "control/reading.py": _TRITON,
    "http_api/administration.py": _TRITON,
    "inference/tensor_data.py": _TRITON,
    "backend/api.py": _DEVELOPERS,
    "backend/adapters.py": _DEVELOPERS,
    "backend/kinds.py": _DEVELOPERS,
    "backend/signature.py": _DEVELOPERS,
    "web_sockets/frames.py": "a text of our own",
}


def test_no_refusal_shows_a_value() -> None:
    assert {name for name, path in files() if shown_values(tree_of(path))} == {*SHOWING}
