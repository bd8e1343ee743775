"""Imports every module of the floor and the stub, and tries the basics.

Run by each old Python with the path of `stub/`.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys


def check_syntax(path: str) -> None:
    with open(path, encoding="utf-8") as source:
        compile(source.read(), path, "exec")


def check_imports() -> None:
    import zmqtriton_floor
    import zmqtriton_stub

    for package in (zmqtriton_floor, zmqtriton_stub):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            name = module.name
            if ".model_path" in name:
                continue
            if name.endswith(".gpu_cuda"):  # needs cupy, which none of them has
                check_syntax(os.path.join(package.__path__[0], "memory", "gpu_cuda.py"))
            else:
                importlib.import_module(name)
    sys.path.append(zmqtriton_stub.MODEL_PATH)
    one, other = map(
        importlib.import_module, ("triton_python_backend_utils", "c_python_backend_utils")
    )
    assert one.Tensor is other.Tensor
    assert one.__name__ == one.Tensor.__module__.replace("c_", "triton_")


def check_messages() -> None:
    from zmqtriton_floor import wire
    from zmqtriton_floor.errors import ProtocolError

    messages = [
        wire.Execute([wire.BatchedRequest(1, 2, 3, 0, "correlation", 0, 0)]),
        wire.Results([wire.Outcome(2, 3, 0, "", 1)], [wire.Executed(1, 2, 3, 4)]),
        wire.Bootstrap(1, b"x" * 16, "stub", "/run", 1, "{}"),
        wire.Infer([wire.Request(1, 2, "", -1, 0, 0, 0, 0, 1, 0, 7)]),
    ]
    for message in messages:
        assert wire.decode(wire.encode(message)) == message
    for wrong in (b"", b"\xc1", wire.encode(messages[0])[:-1]):
        try:
            wire.decode(wrong)
        except ProtocolError:
            continue
        raise AssertionError(wrong)


def check_requests() -> None:
    from zmqtriton_floor import wire
    from zmqtriton_floor.signature import Signature

    tensor = {"name": "A", "data_type": "TYPE_FP32", "dims": [1]}
    request = wire.RequestBody("id", {"f": 1.5}, [], [wire.Tensor("A", 11, [1, 1], b"1234")])
    assert wire.decode_request(wire.encode_body(request)) == request
    Signature({"name": "m", "max_batch_size": 4, "input": [tensor]}).check(request)


def check_tensors() -> None:
    import numpy as np

    from zmqtriton_stub.api import tensor as pb_tensor

    for dtype in (np.bool_, np.int8, np.uint64, np.float16, np.float64, np.object_):
        array = np.array([[1, 0], [0, 1]]).astype(dtype)
        arrived = pb_tensor.received_tensor(
            pb_tensor.packed(pb_tensor.Tensor("T", array))
        ).as_numpy()
        if dtype is np.object_:
            array = np.array([[b"1", b"0"], [b"0", b"1"]], dtype)
        assert arrived.tolist() == array.tolist(), dtype


def check_dlpack() -> None:
    import numpy as np

    from zmqtriton_floor import wire
    from zmqtriton_stub.api import dlpack
    from zmqtriton_stub.api import tensor as pb_tensor

    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    tensor = pb_tensor.Tensor.from_dlpack("T", pb_tensor.Tensor("S", array))
    assert np.shares_memory(array, tensor.as_numpy()) == hasattr(array, "__dlpack__")
    for dtype in (np.bool_, np.uint8, np.int64, np.float16):
        taken = dlpack.take(pb_tensor.Tensor("T", array.astype(dtype)).to_dlpack())
        assert taken.array.tolist() == array.astype(dtype).tolist(), dtype
        assert taken.array.dtype == dtype
    row = wire.Tensor("B", 14, [2], b"1234")
    again = pb_tensor.Tensor.from_dlpack("B", pb_tensor.received_tensor(row).to_dlpack())
    assert pb_tensor.packed(again) == row
    # what old numpy is given
    assert dlpack.take(dlpack._give_copy(array)).array.tolist() == array.tolist()


def check_descriptions() -> None:
    import numpy as np

    from zmqtriton_stub.api import errors
    from zmqtriton_stub.api import tensor as pb_tensor

    text = ""
    try:
        pb_tensor.Tensor("", np.zeros(1))
    except errors.TritonModelException as error:
        text = errors.describe(error)
    assert text.startswith("TritonModelException: Tensor name cannot be an empty string.\n\nAt:\n")
    assert text.count(os.path.basename(__file__)) == 1, text


def check_metrics() -> None:
    from zmqtriton_stub.api.metrics import MetricFamily

    family = MetricFamily("f", "", MetricFamily.COUNTER)
    counter = family.Metric({"a": "b"})
    counter.increment(1.5)
    assert (counter.value(), repr(family.COUNTER)) == (1.5, "<MetricKind.COUNTER: 0>")


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    check_imports()
    check_messages()
    check_requests()
    check_tensors()
    check_dlpack()
    check_descriptions()
    check_metrics()
    sys.stdout.write("as expected\n")
