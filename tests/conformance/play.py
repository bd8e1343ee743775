"""Sends the requests of a case to a server and makes documents of what comes back.

record.py keeps the documents of real Triton, test_replay.py compares ours with them. What cannot
be the same in two runs is replaced here, and nothing else.
"""

from __future__ import annotations

import http.client
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import json_format, text_format
from google.protobuf.message import Message
from tritonclient.grpc import service_pb2

from tests.conformance import loads
from tests.conformance.cases import Bytes, Case, Http, Loaded, Request, Rpc, Scrape, Stream

_LOAD_METRICS = "endpoint-load-metrics"
#: Of an HTTP answer; the others are the transport's or hold the time.
HEADERS = (
    "content-type",
    "content-encoding",
    "inference-header-content-length",
    "accept-encoding",
    _LOAD_METRICS,
)
_TYPES_OF_ERRORS = ("application/json", "text/plain")
#: In place of a status, where the server hangs or dies.
NO_ANSWER = "no answer"
_SERVICE = "inference.GRPCInferenceService"
#: Fields that are maps, in the answers that we ask for.
_MAPS = ("parameters", "regions", "settings")
_SIZES = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


class Target:
    """A running server: where it listens, and the repository as its texts name it."""

    def __init__(
        self, ports: tuple[int, int, int], repository: str, log: Path | None = None
    ) -> None:
        """Set up with the ports of HTTP, gRPC and the metrics."""
        self.http_port, grpc_port, self._metrics_port = ports
        self._channel = grpc.insecure_channel(f"127.0.0.1:{grpc_port}", options=_SIZES)
        self._repository = repository
        #: Where reasons stand that no answer has.
        self._log = log

    def close(self) -> None:
        self._channel.close()

    def play(self, case: Case) -> list[Any]:
        """The answers to a case's requests, in order."""
        return [self._normal(self._answer(request)) for request in case.requests]

    def _answer(self, request: Request) -> Any:
        if isinstance(request, Http):
            return _send(self.http_port, request)
        if isinstance(request, Rpc):
            return _call(self._channel, request)
        if isinstance(request, Bytes):
            return _call_with_bytes(self._channel, request)
        if isinstance(request, Loaded):
            return self._load(request)
        if isinstance(request, Scrape):
            return _scrape(self._metrics_port, request)
        return _stream(self._channel, request)

    def _load(self, request: Loaded) -> Any:
        try:
            return loads.load(self.http_port, request, self._log)
        except TimeoutError:
            return {NO_ANSWER: "within the time"}
        except (http.client.HTTPException, ConnectionError) as error:
            return {NO_ANSWER: type(error).__name__}

    def _normal(self, answer: Any) -> Any:
        text = json.dumps(answer)
        text = text.replace(json.dumps(self._repository)[1:-1], "@REPOSITORY@")
        for pattern, replacement in _CHANGING:
            text = pattern.sub(replacement, text)
        return json.loads(without_our_sentences(text))


def without_our_sentences(text: str) -> str:
    """Return the text as Triton would have it, without what ours says behind it."""
    for pattern in _OUR_SENTENCES:
        text = pattern.sub("", text)
    return text


#: Behind Triton's reason: where the cause stands, what was probably meant, what is to be done.
_OUR_SENTENCES = tuple(
    re.compile(pattern)
    for pattern in (
        r" \(at @REPOSITORY@/[^ ()]+:\d+\)",
        r" \(in @REPOSITORY@/[^ ()]+\)",
        r"(?<=is not found)\. Did you mean '[^']*'\?",
        r" Did you mean '[^']*'\?",
        r" \(input '[^']*' has \d+ elements in 'data' and \d+ in 'shape'\)",
        r" \(input '[^']*'( is [A-Z0-9]+)?\)",
        r" \('[^']*'; did you mean '[^']*'\?\)",
        r"(?<='string'\.) The inputs of this model are: [^.]*\.",
        r" Its inputs are [^;]*; none of them: [^.]*\.",
        r"(?<=has no available versions)\. It[^\"\\]*",
        r"(?<=is not at ready state)\. It[^\"\\]*",
        r"(?<=failed to poll from model repository)\. No model repository [^\"\\]*",
        r" This server has the backends [^\"]*?--backend-directory\.",
        r"\. A version is a directory such as [^\";\\]*",
    )
)


#: What differs from run to run, or from machine to machine, in the text of an answer as JSON.
_CHANGING = (
    (re.compile(r"\b0x[0-9a-f]{6,}"), "@ADDRESS@"),
    (re.compile(r'"[^" ]*/lib/python3\.\d+/'), '"@LIBRARY@/'),
    (re.compile(r"(?<=[ (\"])/[^\" ]*/lib/python3\.\d+/"), "@LIBRARY@/"),
    (re.compile(r"\((\d+)\): (?=_bootstrap|_find_and_load|_call_with)"), "(@LINE@): "),
    # Of the models' own frames only: Triton's library has some where we have none.
    (re.compile(r'  [^\\" ]*/triton_python_backend_utils\.py\(\d+\): \w+\\n'), ""),
    # The server says so, or the client, whoever notices first.
    (re.compile(r'"Deadline Exceeded: [^"\\]*"'), '"Deadline Exceeded"'),
    # Newer than 2.51.
    (re.compile(r',\\"max_inflight_requests\\":0'), ""),
    (re.compile(r'"ns": "?\d+"?'), '"ns": "@TIME@"'),
    (re.compile(r'"last_inference": "?\d+"?'), '"last_inference": "@TIME@"'),
    # On the page of the metrics.
    (re.compile(r"(_duration_(?:us|secs)\{[^{}]*\}) [0-9.e+-]+"), r"\1 @TIME@"),
)


# ------------------------------------------------------------------------ HTTP


def _send(port: int, request: Http) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=request.timeout_s)
    try:
        connection.putrequest(request.method, request.path, skip_accept_encoding=True)
        names = {name.lower() for name in request.headers}
        if "content-length" not in names and "transfer-encoding" not in names:
            connection.putheader("Content-Length", str(len(request.body)))
        for name, value in request.headers.items():
            connection.putheader(name, value)
        connection.endheaders(request.body)
        response = connection.getresponse()
        body = response.read()
    except TimeoutError:
        return {NO_ANSWER: "within the time"}
    except (http.client.HTTPException, ConnectionError) as error:
        return {NO_ANSWER: type(error).__name__}
    finally:
        connection.close()
    headers = {name: response.headers[name] for name in HEADERS if name in response.headers}
    if _LOAD_METRICS in headers:
        # The form; the figures are those of the moment.
        headers[_LOAD_METRICS] = headers[_LOAD_METRICS].partition(" ")[0]
    if (response.status >= 400 or not body) and headers.get("content-type") in _TYPES_OF_ERRORS:
        # See docs/recorded-differences.md.
        del headers["content-type"]
    return {"status": response.status, "headers": headers, **_body(headers, body)}


def _scrape(port: int, request: Scrape) -> dict[str, Any]:
    answer = _send(port, Http(request.method, request.path, timeout_s=request.timeout_s))
    body = answer.get("body")
    if isinstance(body, str):
        # Triton's come in the order of a hash.
        lines = sorted(body.splitlines())
        answer["body"] = [line for line in lines if re.search(request.pattern, line)]
    return answer


def _body(headers: dict[str, str], body: bytes) -> dict[str, Any]:
    if headers.get("content-type", "").startswith("text/event-stream"):
        return {"events": [_document(event) for event in body.decode().split("\n\n") if event]}
    length = headers.pop("inference-header-content-length", None)
    if length is None or not length.isdigit():
        return {"body": _document(body.decode("latin-1"))}
    # Two ways to write the same JSON differ in length.
    size = int(length)
    document = _document(body[:size].decode("latin-1"))
    return {"body": document, "binary": body[size:].decode("latin-1")}


def _document(text: str) -> Any:
    """JSON as a value, with the keys in their order; anything else as the text that it is."""
    prefix = "data: "
    if text.startswith(prefix):
        return {"data": _document(text[len(prefix) :])}
    try:
        return json.loads(text)
    except ValueError:
        return text


# ------------------------------------------------------------------------ gRPC


@cache
def _types(method: str) -> tuple[type[Message], type[Message]]:
    service = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    described = service.methods_by_name[method]
    return (
        getattr(service_pb2, described.input_type.name),
        getattr(service_pb2, described.output_type.name),
    )


def _call(channel: grpc.Channel, request: Rpc) -> dict[str, Any]:
    sent, received = _types(request.method)
    ask = channel.unary_unary(
        f"/{_SERVICE}/{request.method}",
        request_serializer=sent.SerializeToString,
        response_deserializer=received.FromString,
    )
    metadata = tuple(request.metadata.items())
    try:
        answer = ask(
            text_format.Parse(request.message, sent()),
            timeout=request.timeout_s,
            metadata=metadata,
        )
    except grpc.RpcError as error:
        return {"code": error.code().name, "details": error.details()}
    return {"code": "OK", "message": document(answer)}


def _call_with_bytes(channel: grpc.Channel, request: Bytes) -> dict[str, Any]:
    # Without (de)serializers bytes go out, and come back, as they are.
    ask = channel.unary_unary(request.path)
    try:
        answer = ask(request.data, timeout=request.timeout_s)
    except grpc.RpcError as error:
        return {"code": error.code().name, "details": error.details()}
    # A stream that ends well without a message is OK too.
    return {"code": "OK", "bytes": None if answer is None else answer.decode("latin-1")}


def _stream(channel: grpc.Channel, request: Stream) -> dict[str, Any]:
    sent, received = _types("ModelStreamInfer")
    ask = channel.stream_stream(
        f"/{_SERVICE}/ModelStreamInfer",
        request_serializer=sent.SerializeToString,
        response_deserializer=received.FromString,
    )
    messages = [text_format.Parse(text, sent()) for text in request.messages]
    answers: list[Any] = []
    responses = ask(
        iter(messages), timeout=request.timeout_s, metadata=tuple(request.metadata.items())
    )
    try:
        answers.extend(document(answer) for answer in responses)
    except grpc.RpcError as error:
        return {"messages": answers, "code": error.code().name, "details": error.details()}
    return {"messages": answers, "code": "OK"}


def document(answer: Message) -> Any:
    """A message as JSON; bytes as text with one sign for each, so that people can read them."""
    message = json_format.MessageToDict(answer, preserving_proto_field_name=True)
    inner = getattr(answer, "infer_response", answer)
    raw = [data.decode("latin-1") for data in getattr(inner, "raw_output_contents", ())]
    if raw:
        message.get("infer_response", message)["raw_output_contents"] = raw
    return _sorted_maps(message)


def _sorted_maps(message: Any) -> Any:
    """Maps of protobuf have no order; fields have that of their numbers."""
    if isinstance(message, list):
        return [_sorted_maps(one) for one in message]
    if not isinstance(message, dict):
        return message
    return {
        key: dict(sorted(value.items())) if key in _MAPS else _sorted_maps(value)
        for key, value in message.items()
    }


# ---------------------------------------------------------------------- errors


def has_error(answers: list[Any]) -> bool:
    """Return True if one of a case's answers, or of the messages of a stream, is an error."""
    for answer in answers:
        if answer.get("status", 200) >= 400 or answer.get("code", "OK") != "OK":
            return True
        parts = [*answer.get("events", ()), *answer.get("messages", ())]
        if NO_ANSWER in answer or any(
            "error" in part.get("data", part) or "error_message" in part for part in parts
        ):
            return True
    return False
