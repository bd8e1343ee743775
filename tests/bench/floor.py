"""The least that gRPC costs with grpc.aio: both RPCs that infer, with an echo behind them.

`python -m tests.bench.floor PORT` is started by run.py, which prints it beside the server; it
prints a line when it serves, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from zmqtriton_protos import message

_REQUEST = message("inference.ModelInferRequest")
_RESPONSE = message("inference.ModelInferResponse")
_STREAM_RESPONSE = message("inference.ModelStreamInferResponse")


def _reply(data: bytes) -> Any:
    request = _REQUEST.FromString(data)
    response = _RESPONSE(model_name=request.model_name, model_version="1", id=request.id)
    response.outputs.add(name="OUTPUT0", datatype="FP32").shape.extend(request.inputs[0].shape)
    response.raw_output_contents.append(request.raw_input_contents[0])
    return response


async def _infer(data: bytes, _context: Any) -> bytes:
    return _reply(data).SerializeToString()


async def _stream(requests: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
    async for data in requests:
        yield _STREAM_RESPONSE(infer_response=_reply(data)).SerializeToString()


async def main(port: int) -> None:
    unlimited = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    server = grpc.aio.server(options=unlimited)
    rows = {
        "ModelInfer": grpc.unary_unary_rpc_method_handler(_infer),
        "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(_stream),
    }
    service = grpc.method_handlers_generic_handler("inference.GRPCInferenceService", rows)
    server.add_generic_rpc_handlers([service])
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    print("serves", flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
