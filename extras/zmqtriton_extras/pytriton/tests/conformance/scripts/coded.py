"""Models that do what their requests say: the input CODE is the body of a function.

Most cases are written so, since then the row of the table shows what the model does.
"""

import asyncio
import json
import os
import textwrap
import threading

import numpy as np
from common import kind, text

from zmqtriton.pytriton.exceptions import PyTritonRuntimeError
from zmqtriton.pytriton.model_config import ModelConfig, Tensor

CODE = Tensor(name="CODE", dtype=bytes, shape=(1,))
INPUTS = [
    CODE,
    Tensor(name="X", dtype=np.float32, shape=(-1,), optional=True),
    Tensor(name="S", dtype=bytes, shape=(-1,), optional=True),
    Tensor(name="SCALAR", dtype=np.int32, shape=(1,), optional=True),
]
OUTPUTS = [
    Tensor(name="F", dtype=np.float32, shape=(-1,)),
    Tensor(name="FIXED", dtype=np.float32, shape=(3,)),
    Tensor(name="GRID", dtype=np.float32, shape=(-1, 2)),
    Tensor(name="I", dtype=np.int32, shape=(-1,)),
    Tensor(name="B", dtype=np.bool_, shape=(-1,)),
    Tensor(name="T", dtype=bytes, shape=(-1,)),
]


class Number:
    """Something that is neither text nor an array."""


NAMES = {
    "Number": Number,
    "PyTritonRuntimeError": PyTritonRuntimeError,
    "asyncio": asyncio,
    "json": json,
    "kind": kind,
    "np": np,
    "os": os,
    "text": text,
    "threading": threading,
    # The process that bound the models.
    "HOST": os.getpid(),
    # What models remember.
    "kept": {},
}


def function(request, head="def"):
    code = request["CODE"].reshape(-1)[0].decode()
    source = f"{head} infer(requests, request):\n{textwrap.indent(code, '    ')}\n"
    names = dict(NAMES)
    exec(compile(source, "coded", "exec"), names)
    return names["infer"]


def coded(requests):
    return function(requests[0])(requests, requests[0])


async def coded_async(requests):
    return await function(requests[0], "async def")(requests, requests[0])


def coded_stream(requests):
    yield from function(requests[0])(requests, requests[0])


def bind(triton):
    plain = ModelConfig(batching=False)
    triton.bind("coded", coded, INPUTS, OUTPUTS, config=plain)
    triton.bind("coded_strict", coded, INPUTS, OUTPUTS, config=plain, strict=True)
    triton.bind("coded_async", coded_async, INPUTS, OUTPUTS, config=plain)
    batched = ModelConfig(max_batch_size=8)
    triton.bind("coded_batched", coded, INPUTS, OUTPUTS, config=batched)
    triton.bind("coded_batched_strict", coded, INPUTS, OUTPUTS, config=batched, strict=True)
    stream = ModelConfig(batching=False, decoupled=True)
    triton.bind("coded_stream", coded_stream, INPUTS, OUTPUTS, config=stream)
