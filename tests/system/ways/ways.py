"""The ways by which a client's request comes to a model, each on one connection.

    with HttpWay(server) as way:
        way.ask(content)

A way refuses what it cannot say with `can_say`; all else comes to the server as it is.
"""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import queue
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, ClassVar

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

import zmqtriton
from tests.support.server import Server
from tests.system.ways.contents import (
    Content,
    Input,
    Outcome,
    Output,
    elements,
    failed,
    succeeded,
    texts,
)
from zmqtriton_extras.door.tests.raw_door import RawDoor
from zmqtriton_floor.datatypes import BY_NAME, BYTES, count_elements
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.tensors import datatype_of, from_numpy, to_numpy

#: A request whose client says no time ends after this.
_PATIENCE_S = 60
#: Presented where a content has no other.
TOKEN = "zmqt_a-token-of-all-ways-0123456789"
AUTHORIZATION = ("Authorization", f"Bearer {TOKEN}")


class Way:
    """A connection. To be used with `with`."""

    name: ClassVar[str]
    #: Says the deadlines of its requests, one by one.
    has_deadlines = True
    has_headers = True
    has_regions = True

    def __init__(self, server: Server) -> None:
        raise NotImplementedError

    def __enter__(self) -> Way:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        raise NotImplementedError

    def can_say(self, content: Content) -> bool:
        return (
            (self.has_headers or not content.headers)
            and (self.has_deadlines or not content.within_s)
            and (self.has_regions or not any(one.region for one in content.inputs))
        )

    def ask(self, content: Content) -> Outcome:
        raise NotImplementedError


def runtime_directory(server: Server) -> str:
    return f"{server.directory.parent}/r"


# ------------------------------------------------------------------------ HTTP


class HttpWay(Way):
    """Tensors in binary: what the fast path takes."""

    name = "http"
    is_binary = True

    def __init__(self, server: Server) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.http_port), 60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._socket.close()

    def ask(self, content: Content) -> Outcome:
        path = f"/v2/models/{content.model}"
        if content.version:
            path += f"/versions/{content.version}"
        document, tail = self._document(content)
        text = json.dumps(document).encode()
        headers = dict((AUTHORIZATION, *content.headers))
        if self.is_binary:
            headers["Inference-Header-Content-Length"] = str(len(text))
        if content.within_s:
            headers["X-Request-Timeout"] = str(content.within_s)
        body = self._framed(headers, text + tail)
        lines = [f"POST {path}/infer HTTP/1.1", "Host: localhost"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        with http.client.HTTPResponse(self._socket, method="POST") as answer:
            answer.begin()
            received = answer.read()
            assert not answer.will_close, (content, received)
            return self._outcome(answer, received)

    def _framed(self, headers: dict[str, str], body: bytes) -> bytes:
        """Return the body as it is sent, and add the headers that say how."""
        headers["Content-Length"] = str(len(body))
        return body

    def _document(self, content: Content) -> tuple[dict[str, Any], bytes]:
        parameters: dict[str, Any] = dict(content.parameters)
        if self.is_binary:
            parameters["binary_data_output"] = True
        for name, value in _reserved(content).items():
            parameters[name] = value
        document: dict[str, Any] = {"inputs": [self._input(one) for one in content.inputs]}
        if content.id:
            document["id"] = content.id
        if content.outputs:
            form = {"binary_data": self.is_binary}
            document["outputs"] = [{"name": n, "parameters": form} for n in content.outputs]
        if parameters:
            document["parameters"] = parameters
        sent = [one.data for one in content.inputs if not one.region]
        return document, b"".join(sent) if self.is_binary else b""

    def _input(self, one: Input) -> dict[str, Any]:
        entry: dict[str, Any] = {"name": one.name, "datatype": one.datatype, "shape": one.shape}
        if one.region:
            entry["parameters"] = {
                "shared_memory_region": one.region,
                "shared_memory_byte_size": len(one.data),
            }
        elif self.is_binary:
            entry["parameters"] = {"binary_data_size": len(one.data)}
        elif one.datatype == "BYTES":
            entry["data"] = [value.decode() for value in elements(one.data)]
        else:
            entry["data"] = _array(one).ravel().tolist()
        return entry

    def _outcome(self, answer: http.client.HTTPResponse, received: bytes) -> Outcome:
        if answer.headers["Content-Encoding"] == "gzip":
            received = gzip.decompress(received)
        if answer.status != 200:
            return failed(json.loads(received)["error"], http=answer.status)
        size = int(answer.headers["Inference-Header-Content-Length"] or len(received))
        document, tail = json.loads(received[:size]), received[size:]
        outputs = {}
        for entry in document["outputs"]:
            name, datatype, shape = entry["name"], entry["datatype"], tuple(entry["shape"])
            if self.is_binary:
                length = entry["parameters"]["binary_data_size"]
                data, tail = tail[:length], tail[length:]
            elif datatype == "BYTES":
                data = texts(*(value.encode() for value in entry["data"]))
            else:
                data = np.array(entry["data"], BY_NAME[datatype].numpy).tobytes()
            outputs[name] = Output(datatype, shape, data)
        assert not tail
        named = document["model_name"], document["model_version"], document.get("id", "")
        return succeeded(outputs, *named, document.get("parameters", {}))


class JsonWay(HttpWay):
    name, is_binary = "json", False

    def can_say(self, content: Content) -> bool:
        return all(map(_is_json, content.inputs))


class ChunkedWay(HttpWay):
    """A body in chunks, which Falcon reads."""

    name = "chunked"

    def _framed(self, headers: dict[str, str], body: bytes) -> bytes:
        headers["Transfer-Encoding"] = "chunked"
        half = len(body) // 2
        parts = [part for part in (body[:half], body[half:]) if part]
        return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


class PackedWay(HttpWay):
    """A body that is compressed, as its answer is."""

    name = "packed"

    def _framed(self, headers: dict[str, str], body: bytes) -> bytes:
        packed = gzip.compress(body, 1)
        headers |= {"Content-Encoding": "gzip", "Accept-Encoding": "gzip"}
        headers["Content-Length"] = str(len(packed))
        return packed


def _reserved(content: Content) -> dict[str, Any]:
    """Return the parameters that are the server's."""
    fields = {"priority": content.priority, "timeout": content.timeout_us}
    fields |= {"sequence_id": content.sequence, "sequence_start": content.is_start}  # type: ignore[dict-item]
    return {k: v for k, v in {**fields, "sequence_end": content.is_end}.items() if v}


def _array(one: Input) -> Any:
    return to_numpy(BY_NAME[one.datatype].number, list(one.shape), one.data)


def _is_array(one: Input) -> bool:
    """True if numpy has such an array."""
    datatype = BY_NAME.get(one.datatype)
    if datatype is None or not datatype.numpy_name or min(one.shape, default=0) < 0:
        return False
    if datatype.number != BYTES:
        return len(one.data) == count_elements(one.shape) * datatype.size
    strings = elements(one.data)
    return texts(*strings) == one.data and len(strings) == count_elements(one.shape)


def _is_json(one: Input) -> bool:
    if not _is_array(one) or one.datatype == "FP16":
        return False
    with suppress(UnicodeDecodeError):
        return one.datatype != "BYTES" or all(v.decode() is not None for v in elements(one.data))
    return False


# ------------------------------------------------------------------------ gRPC


def _message(content: Content) -> Any:
    request = service_pb2.ModelInferRequest(
        model_name=content.model, model_version=content.version, id=content.id
    )
    for one in content.inputs:
        entry = request.inputs.add(name=one.name, datatype=one.datatype, shape=one.shape)
        if one.region:
            entry.parameters["shared_memory_region"].string_param = one.region
            entry.parameters["shared_memory_byte_size"].int64_param = len(one.data)
        else:
            request.raw_input_contents.append(one.data)
    for name in content.outputs:
        request.outputs.add(name=name)
    for name, value in (*content.parameters, *_reserved(content).items()):
        parameter = request.parameters[name]
        kinds = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}
        setattr(parameter, kinds[type(value)], value)
    return request


def _answer(response: Any) -> Outcome:
    outputs = {
        tensor.name: Output(tensor.datatype, tuple(tensor.shape), data)
        for tensor, data in zip(response.outputs, response.raw_output_contents, strict=True)
    }
    parameters = {
        name: getattr(parameter, parameter.WhichOneof("parameter_choice"))
        for name, parameter in response.parameters.items()
        if name != "triton_final_response"
    }
    return succeeded(outputs, response.model_name, response.model_version, response.id, parameters)


def _metadata(headers: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    return [(name.lower(), value) for name, value in dict((AUTHORIZATION, *headers)).items()]


class GrpcWay(Way):
    name = "grpc"
    compression: Any = None

    def __init__(self, server: Server) -> None:
        own = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
        self._channel = grpc.insecure_channel(server.grpc_address, own)
        grpc.channel_ready_future(self._channel).result(_PATIENCE_S)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def close(self) -> None:
        self._channel.close()

    def ask(self, content: Content) -> Outcome:
        metadata = _metadata(content.headers)
        try:
            response = self._stub.ModelInfer(
                _message(content),
                metadata=metadata,
                timeout=content.within_s or None,
                compression=self.compression,
            )
        except grpc.RpcError as error:
            return failed(error.details(), grpc=error.code().value[0])
        return _answer(response)


class PackedGrpcWay(GrpcWay):
    name, compression = "packed grpc", grpc.Compression.Gzip


class StreamWay(GrpcWay):
    """All requests are those of one stream, whose headers they share."""

    name = "stream"
    has_deadlines = has_headers = False

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._sent: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._answers = self._stub.ModelStreamInfer(self._requests(), metadata=_metadata(()))

    def _requests(self) -> Iterator[Any]:
        while (request := self._sent.get()) is not None:
            yield request

    def close(self) -> None:
        self._sent.put(None)
        super().close()

    def ask(self, content: Content) -> Outcome:
        self._sent.put(_message(content))
        answer = next(self._answers)
        if answer.error_message:
            return failed(answer.error_message)
        return _answer(answer.infer_response)


# --------------------------------------------------- without a port of the network


class DoorWay(Way):
    name = "door"
    has_headers = False

    def __init__(self, server: Server) -> None:
        self._door = RawDoor(f"{runtime_directory(server)}/door")

    def close(self) -> None:
        self._door.close()

    def ask(self, content: Content) -> Outcome:
        fields: dict[str, Any] = {
            "model": content.model,
            "version": content.version,
            "request_id": content.id,
            "inputs": [
                {"name": one.name, "datatype": one.datatype, "shape": one.shape}
                | ({"region": one.region, "byte_size": len(one.data)} if one.region else {})
                for one in content.inputs
            ],
            "outputs": content.outputs,
            "parameters": dict(content.parameters),
            **_reserved(content),
        }
        if "timeout" in fields:
            fields["timeout_us"] = fields.pop("timeout")
        if content.within_s:
            fields["deadline_us"] = content.within_s * 1_000_000
        sent = (one.data for one in content.inputs if not one.region)
        kind, answer, frames = self._door.ask("infer", fields, *sent)
        if kind == "error":
            return failed(answer["text"], http=answer["http_status"])
        outputs = {
            output["name"]: Output(output["datatype"], tuple(output["shape"]), frame)
            for output, frame in zip(answer["outputs"], frames, strict=True)
        }
        named = answer["model"], str(answer["version"]), answer.get("request_id", "")
        return succeeded(outputs, *named, answer.get("parameters", {}))


class GuestWay(Way):
    """A frontend in this process."""

    name = "guest"
    has_headers = has_regions = False

    def __init__(self, server: Server) -> None:
        self._connection = zmqtriton.connect(path=runtime_directory(server))

    def close(self) -> None:
        self._connection.close()

    def can_say(self, content: Content) -> bool:
        names = [one.name for one in content.inputs]
        are_arrays = all(map(_is_array, content.inputs))
        return super().can_say(content) and are_arrays and len(set(names)) == len(names)

    def ask(self, content: Content) -> Outcome:
        model = self._connection.model(content.model, content.version)
        try:
            [response] = model.infer(
                inputs={one.name: _array(one) for one in content.inputs},
                request_id=content.id,
                outputs=content.outputs,
                parameters=dict(content.parameters),
                priority=content.priority,
                timeout=content.timeout_us,
                correlation_id=content.sequence,
                sequence_start=content.is_start,
                sequence_end=content.is_end,
                deadline_s=content.within_s or None,
            )
            if response.error is not None:
                raise response.error
        except ZmqTritonError as error:
            return failed(error.text, http=error.http_status)
        outputs = {name: _output(array) for name, array in response.outputs.items()}
        named = response.model, str(response.version), response.request_id
        return succeeded(outputs, *named, response.parameters)


def _output(array: Any) -> Output:
    return Output(datatype_of(array).name, array.shape, bytes(from_numpy(array)))


class BlsWay(HttpWay):
    """The question of a model, which another client has."""

    name = "bls"
    has_headers = has_deadlines = has_regions = False

    def can_say(self, content: Content) -> bool:
        has_floats = any(type(value) is float for _, value in content.parameters)
        is_sayable = Way.can_say(self, content) and all(map(_is_array, content.inputs))
        is_sayable = is_sayable and content.version.isdecimal() | (not content.version)
        return is_sayable and not has_floats and not content.priority

    def ask(self, content: Content) -> Outcome:
        question = {
            "model_name": content.model,
            "model_version": int(content.version or -1),
            "request_id": content.id,
            "inputs": [_as_json(one) for one in content.inputs],
            "requested_output_names": content.outputs or _OUTPUTS.get(content.model, _ALL),
            "parameters": dict(content.parameters),
            "timeout": content.timeout_us,
            "correlation_id": content.sequence,
            "flags": content.is_start + 2 * content.is_end,
        }
        text = texts(json.dumps(question).encode())
        outcome = super().ask(Content((Input("ASKED", "BYTES", (1,), text),), "mirror_asker"))
        assert outcome.status == 200, outcome
        answer = json.loads(outcome.outputs["TOLD"].data[4:])
        if "text" in answer:
            # it says whose error it is
            prefix = f"Model {content.model} - Error when running inference: "
            return failed(answer["text"].removeprefix(prefix), code=answer["code"])
        outputs = {name: _output(_read(*rest)) for name, rest in answer["outputs"].items()}
        return succeeded(outputs, parameters=answer["parameters"])


#: A model must name the outputs that it wants of another.
_ALL = ("SEEN", "TEXTS_BACK", "FLOATS_BACK", "PAIRS_BACK", "HALVES_BACK", "FLAGS_BACK")
_OUTPUTS = {"mirror_twice": ("SEEN", "OUT"), "add_sub": ("OUTPUT0", "OUTPUT1")}


def _as_json(one: Input) -> list[Any]:
    if one.datatype == "BYTES":
        values = [base64.b64encode(value).decode() for value in elements(one.data)]
        return [one.name, "object", one.shape, values]
    dtype = np.dtype(BY_NAME[one.datatype].numpy).name
    return [one.name, dtype, one.shape, base64.b64encode(one.data).decode()]


def _read(dtype: str, shape: list[int], data: Any) -> Any:
    if dtype == "object":
        values = [base64.b64decode(value) for value in data]
        return np.array(values, dtype=np.object_).reshape(shape)
    return np.frombuffer(base64.b64decode(data), dtype=dtype).reshape(shape)
