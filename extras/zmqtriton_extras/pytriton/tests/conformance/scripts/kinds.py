"""Every type that a tensor may have: what the callable sees of it, and that it comes back."""

import numpy as np
from common import PLAIN, kind, tensors, text

from zmqtriton.pytriton.model_config import Tensor

TYPES = {
    "BOOL": np.bool_,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
    "BYTES_bytes": bytes,
    "BYTES_bytes_": np.bytes_,
    "BYTES_object": object,
    "BYTES_object_": np.object_,
    "FP32_dtype": np.dtype("float32"),
    "BYTES_dtype": np.dtype("S5"),
    "FP32_float_": np.single,
}


def echo(requests):
    return [seen(request) for request in requests]


def seen(request):
    array = request["x"]
    items = {type(item).__name__ for item in array.ravel().tolist()}
    return {"x": array, "seen": text([*kind(array), sorted(items)])}


def sizes(requests):
    return [{"sizes": np.array([request["x"].size], np.int32)} for request in requests]


def bind(triton):
    for name, dtype in TYPES.items():
        outputs = [*tensors("x", dtype=dtype), *tensors("seen", dtype=bytes)]
        triton.bind(f"type_{name}", echo, tensors("x", dtype=dtype), outputs, config=PLAIN)
    shapes = {
        "any": (-1, -1),
        "fixed": (2, 3),
        "one": (1,),
        "half": (-1, 2),
    }
    for name, shape in shapes.items():
        outputs = [
            Tensor(name="x", dtype=np.int32, shape=shape),
            Tensor(name="seen", dtype=bytes, shape=(-1,)),
        ]
        inputs = tensors("x", dtype=np.int32, shape=shape)
        triton.bind(f"shape_{name}", echo, inputs, outputs, config=PLAIN)
    triton.bind("two_unnamed", add, [unnamed(), unnamed()], [unnamed()], config=PLAIN)
    triton.bind("mixed_names", add_mixed, [unnamed(), *tensors("b")], [unnamed()], config=PLAIN)
    triton.bind("strings_shape", echo, *strings(), config=PLAIN)


def unnamed():
    return Tensor(dtype=np.float32, shape=(-1,))


def add(requests):
    return [{"OUTPUT_1": request["INPUT_1"] + request["INPUT_2"]} for request in requests]


def add_mixed(requests):
    return [{"OUTPUT_1": request["INPUT_1"] + request["b"]} for request in requests]


def strings():
    shape = (2, 2)
    outputs = [*tensors("x", dtype=bytes, shape=shape), *tensors("seen", dtype=bytes)]
    return tensors("x", dtype=bytes, shape=shape), outputs
