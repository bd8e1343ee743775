"""Documents of clients that are read on a loop have a limit of bytes: all other clients wait."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repo.sources import files_below, tree_of
from tests.support.needs import ROOT

#: The code that runs on loops to which clients send bytes: of frontends, and of add-ons in them or
#: in processes of their own.
ROOMS = (
    "frontends/zmqtriton_frontends",
    *(f"standard/zmqtriton_standard/{room}" for room in ("access_log", "generate")),
    *(
        f"extras/zmqtriton_extras/{room}"
        for room in (
            "affinity/step.py",
            "affinity/rule.py",
            "canaries/requests.py",
            "capture/step.py",
            "clouds",
            "door",
            "jobs",
            "open_metrics",
            "openai",
            "routes",
            "web_sockets",
        )
    ),
)
#: Functions of libraries whose time grows with the text: JSON, forms, msgpack, protobuf, base64,
#: compression, e-mail, evaluation, and the elements of a tensor of strings.
READERS = frozenset(
    "loads JSONDecoder raw_decode parse_qsl parse_qs unpackb Unpacker unpack ParseFromString "
    "FromString MergeFromString ParseDict b64decode decompress decompressobj GzipFile "
    "message_from_bytes message_from_string BytesParser BytesFeedParser fromstring literal_eval "
    "safe_load decode_bytes".split()
)
#: Functions that look for an expression at each place of a text. Others end where they begin.
SCANNERS = frozenset({"search", "finditer", "findall", "sub", "subn", "split"})
_HEAD, _OWN, _CONFIG = (
    "a part of a head, which has a limit",
    "a model's own text",
    "a configuration",
)
_THREAD = "runs in a thread"
_SERVER = "a message of another process of this server"
_OURS = "a row that this process has written, headers and times"
#: Functions without a limit of their own, and the reason why they need none.
EXEMPT = {
    "access/bearer_tokens.py without_places": "an error of our own",
    "access_log/process.py take": _SERVER,
    "access_log/step.py _without_names": "the text of an error, which has a limit",
    "backend/api.py __init__": "a query, which is a part of the limited head",
    "backend/api.py _compiled": "a route of the model",
    "backend/api.py describe": "a route of the model",
    "backend/asgi.py describe": _OWN,
    "backend/model.py _serve": "a head, of which the frontend limits the headers",
    "backend/model.py declared_inputs": _CONFIG,
    "backend/model.py initialize": _CONFIG,
    "backend/multipart.py _values": "a part's header, of MAX_HEADERS bytes",
    "backend/multipart.py parts_of": "the content type, a part of a head",
    "batches/routes.py _request": "its caller reads a limited body",
    "clouds/target_models.py _is_ensemble": _CONFIG,
    "door/messages.py connection_event": "libzmq's own words",
    "gateway/control_calls.py _answer": _SERVER,
    "generate/request.py _check_keys": "a part of the reading of a document, in the same thread",
    "grpc_api/handlers.py _by_messages": "the fields of our own responses",
    "grpc_api/handlers.py answer": "the fields of our own responses",
    "http_api/administration.py _decode_one": f"{_THREAD}, in steps",
    "http_api/app.py answer_fault": "our own text",
    "inference/model_version.py __init__": _CONFIG,
    "inference/model_version.py config": _CONFIG,
    "inference/convert.py parse": "its callers limit the message (reading.read)",
    "inference/gradual_parsing.py _parse": "a part of a message",
    "inference/json_documents.py _parse_piece": "a part of parse",
    "inference/json_documents.py _parse_with_nan": "a part of parse",
    "inference/tensor_data.py _other_list": "an answer; a thread writes large ones",
    "jobs/messages.py ask": _SERVER,
    "jobs/messages.py parts": _SERVER,
    "jobs/messages.py read_head": _SERVER,
    "jobs/routes.py around": _HEAD,
    "jobs/routes.py respond": _HEAD,
    "openai/call_text.py _string": _OWN,
    "openai/choices.py _strings": _OWN,
    "openai/choices.py parts_of_messages": _OWN,
    "openai/choices.py read_calls": _OWN,
    "openai/choices.py read_logprobs": _OWN,
    "openai/tensor_names.py takes_json": _CONFIG,
    "openai/formats.py parse": _OWN,
    "openai/speech.py _sounds": f"{_OWN}, in a thread if it is large",
    "openai/transcriptions.py _texts": f"{_OWN}, in a thread if it is large",
    "process/clients.py _responses": _OURS,
    "process/clients.py _show": _OURS,
    "process/codecs.py __init__": "begins only",
    "process/codecs.py step": "its callers say how many bytes",
    "process/execution.py _scope": _OURS,
    "process/lines.py _parse": f"{_THREAD}, with a limit for each line",
    "process/results.py _is_json": _OURS,
    "process/room.py of_batch": _OURS,
    "process/tables.py enter": _OURS,
    "routes/explaining.py _failures": "a line of the log, in a command",
    "routes/forwarding.py _add": _HEAD,
    "routes/forwarding.py describe": _OWN,
    "routes/process.py _look": _CONFIG,
    "serving/connections.py answer": _SERVER,
    "templates/__init__.py _variables": _OWN,
    "templates/__main__.py _read": "a process of its own",
    "token_metrics/texts.py parse_sums": _SERVER,
    "token_metrics/figures.py load_families": "settings of this server",
    "token_metrics/process.py _take": _SERVER,
    "token_metrics/step.py _take": _SERVER,
    "transport/call_headers.py _value": _HEAD,
    "transport/message_framing.py _read_head": "the head of a message",
    "webhooks/signatures.py _secret": "a file of the operator's",
    "open_metrics/form.py __call__": _SERVER,
    "open_metrics/form.py _bucket_in": "a line of our own page",
    "open_metrics/form.py _lines": "our own page",
}


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _names(tree: ast.AST) -> set[str]:
    return {
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute)
    }


def _expressions(tree: ast.Module) -> set[str]:
    """Return the module and the names that hold compiled expressions."""
    return {"re"} | {
        ast.unparse(target)
        for node in tree.body
        if isinstance(node, ast.Assign) and "re.compile" in ast.unparse(node.value)
        for target in node.targets
    }


def _scans(function: ast.AST, expressions: set[str]) -> bool:
    return any(
        isinstance(node, ast.Attribute)
        and node.attr in SCANNERS
        and ast.unparse(node.value) in expressions
        for node in ast.walk(function)
    )


def unlimited(path: Path, tree: ast.Module) -> list[str]:
    """Return the functions that read a text without a constant `…MAX…_BYTES` or `LARGE_BYTES`."""
    expressions = _expressions(tree)
    return [
        f"{path.parent.name}/{path.name} {function.name}"
        for function in _functions(tree)
        if not READERS.isdisjoint(names := _names(function)) or _scans(function, expressions)
        if not any(name.endswith("BYTES") and ("MAX" in name or "LARGE" in name) for name in names)
    ]


def test_a_text_of_a_client_is_read_on_a_loop_up_to_a_limit() -> None:
    functions = {
        row
        for room in ROOMS
        for path in files_below(ROOT / room)
        for row in unlimited(path, tree_of(path))
    }

    assert EXEMPT.keys() == functions


@pytest.mark.parametrize(
    "line",
    [
        "json.loads(text)",
        "orjson.loads(text)",
        "msgpack.unpackb(text)",
        "msgpack.Unpacker().feed(text)",
        "urllib.parse.parse_qs(text)",
        "parse_qsl(text)",
        "email.message_from_bytes(text)",
        "BytesFeedParser().feed(text)",
        "Message.FromString(text)",
        "message.ParseFromString(text)",
        "base64.b64decode(text)",
        "gzip.decompress(text)",
        "zlib.decompressobj().decompress(text)",
        "re.findall(b'a+', text)",
        "_WORD.sub(b'', text)",
    ],
)
def test_a_function_without_a_limit_is_found(line: str) -> None:
    head = "_WORD = re.compile(b'a+')\ndef f(text):\n"
    limit = "    if len(text) > _MAX_BYTES:\n        return 0\n"
    text, limited = (f"{head}{more}    return {line}\n" for more in ("", limit))

    assert ["b/a.py f"] == unlimited(Path("b/a.py"), ast.parse(text))
    assert [] == unlimited(Path("b/a.py"), ast.parse(limited))


def test_other_functions_of_these_names_are_no_scanners() -> None:
    text = "def f(text):\n    return text.split(b',') + os.path.split(text)\n"

    assert [] == unlimited(Path("b/a.py"), ast.parse(text))
