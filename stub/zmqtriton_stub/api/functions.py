"""The functions and constants of pb_utils that belong to no class.

Among them the calls to the server's control plane: the supervisor answers over the lifeline; the
calling thread waits, while the main thread continues its other work. The supervisor decides which
calls are allowed.
"""

from __future__ import annotations

import json
from typing import Any, Callable

import numpy as np

from zmqtriton_floor import staging, wire
from zmqtriton_floor.datatypes import BY_NUMBER, DATATYPES
from zmqtriton_floor.errors import InvalidArgument, ZmqTritonError
from zmqtriton_floor.tensors import decode_bytes, encode_bytes
from zmqtriton_stub import instance
from zmqtriton_stub.api.errors import TritonModelException
from zmqtriton_stub.api.inference import InferenceRequest, InferenceResponse
from zmqtriton_stub.api.tensor import Tensor

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1

TRITON_STRING_TO_NUMPY: dict[str, Any] = {
    d.config_name: bool if d.numpy is np.bool_ else d.numpy
    for d in DATATYPES
    if d.numpy is not None
}


def get_backend_settings() -> dict[str, str]:
    """Return the settings of `--backend-config` for this model's backend, and for all backends.

    Not in Triton, where only backends in C++ get them.
    """
    current = instance.here()
    return {} if current is None else dict(current.backend_settings)


def triton_string_to_numpy(triton_type_string: str) -> Any:
    """Return the type of NumPy for a name such as "TYPE_FP32"."""
    return TRITON_STRING_TO_NUMPY[triton_type_string]


def triton_to_numpy_type(data_type: int) -> Any:
    """Return numpy's type for a datatype's number; None if numpy has none."""
    datatype = BY_NUMBER.get(data_type)
    return datatype and datatype.numpy


def numpy_to_triton_type(data_type: Any) -> int | None:
    """Return Triton's number for a type or dtype of numpy, or None."""
    if data_type == np.bytes_:
        data_type = np.object_
    return next((d.number for d in DATATYPES if d.numpy is not None and data_type == d.numpy), None)


def serialize_byte_tensor(input_tensor: Any) -> Any:
    """Return the elements of a BYTES tensor, each after its length; () for no elements.

    Returns None for other datatypes.
    """
    if input_tensor.size == 0:
        return ()
    return encode_bytes(input_tensor) if input_tensor.dtype.kind in "OS" else None


def deserialize_bytes_tensor(encoded_tensor: Any) -> Any:
    """Return a flat array of bytes objects."""
    elements = decode_bytes(bytes(encoded_tensor))
    array = np.empty(len(elements), dtype=np.object_)
    array[:] = elements
    return array


def get_input_tensor_by_name(inference_request: InferenceRequest, name: str) -> Tensor | None:
    """Return the input of that name; None if the request has none."""
    is_ours = type(inference_request) is InferenceRequest  # a test may bring its own
    for tensor in inference_request._inputs if is_ours else inference_request.inputs():
        if name == (tensor._name if is_ours else tensor.name()):
            return tensor
    # a request that the model has made itself is of another model
    here = instance.here()
    if inference_request._pending is not None and here is not None:
        here.tell_unknown_input(name)
    return None


def get_output_tensor_by_name(inference_response: InferenceResponse, name: str) -> Tensor | None:
    """Return the output of that name; None if the response has none."""
    tensors = inference_response.output_tensors()
    return next((tensor for tensor in tensors if tensor.name() == name), None)


def get_input_config_by_name(model_config: dict[str, Any], name: str) -> Any:
    """Return the input's part of a configuration, or None."""
    return _find(model_config.get("input", ()), name)


def get_output_config_by_name(model_config: dict[str, Any], name: str) -> Any:
    """Return the output's part of a configuration, or None."""
    return _find(model_config.get("output", ()), name)


def _find(entries: Any, name: str) -> Any:
    return next((entry for entry in entries if entry["name"] == name), None)


def using_decoupled_model_transaction_policy(model_config: dict[str, Any]) -> bool:
    """Return whether the model may answer any number of times."""
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled", False))


def get_model_dir() -> str:
    """Return the directory of the model's version."""
    here = instance.here()
    if here is None:
        raise TritonModelException("get_model_dir() works only in a model that is being served.")
    return here.version_directory


def make_directory() -> str:
    """Return a new directory for files of a request; the server removes it after this process.

    "" in a process without a server. Not in Triton.
    """
    here = instance.here()
    return staging.make(here.runtime, here.serial) if here is not None and here.runtime else ""


class SharedMemory:
    """The shared memory of this instance's large tensors; its only object is `shared_memory`."""

    def free_memory(self) -> int:
        """Return the number of unused bytes; models compare two results to find leaks."""
        current = instance.here()
        return 0 if current is None or current.memory is None else current.memory.arena.unused_bytes


shared_memory = SharedMemory()


def load_model(model_name: str, config: str = "", files: Any = None) -> None:
    """Load a model and return when it is ready.

    Files need a configuration, and replace the model's directory.
    """
    _check("load_model", (model_name, str), (config, str))
    if files is not None and not isinstance(files, dict):
        raise TritonModelException(
            f"failed to load model '{model_name}', files should be a dictionary of file paths and "
            "file contents"
        )
    parameters: dict[str, str] = {"config": config} if config else {}
    staged: dict[str, bytes] = {}
    for path, content in (files or {}).items():
        _check("load_model", (path, str), (content, bytes))
        if path.startswith(staging.PREFIX):
            staged[path] = content
        else:
            parameters[path] = ""  # the supervisor refuses it by its name
    doing, current = "Failed to load model", instance.here()
    runtime, serial = ("", 0) if current is None else (current.runtime, current.serial)
    if current is None or current.call is None:
        staged = {}  # nobody would take them over
    try:
        arguments = staging.arguments(runtime, serial, model_name, parameters, staged)
    except ZmqTritonError as error:
        raise instance.refusal(doing, error.text) from None
    _call(doing, "load", arguments)


def unload_model(model_name: str, unload_dependents: bool = False) -> None:
    """Unload a model and return when no request can be sent to it any more."""
    _check("unload_model", (model_name, str), (unload_dependents, bool))
    arguments = {"model": model_name, "unload_dependents": unload_dependents}
    _call("Failed to unload model", "unload", arguments)


def is_model_ready(model_name: str, model_version: str = "") -> bool:
    """Return whether a model can execute now; without a version, whether any version can."""
    _check("is_model_ready", (model_name, str), (model_version, str))
    doing = "Failed to check model readiness"
    try:
        version = int(model_version) if model_version else -1
        if model_version and version < 0:
            raise ValueError
    except ValueError:
        raise instance.refusal(
            doing,
            f"failed to get model version from specified version string '{model_version}', "
            "version should be an integral value > 0",
        ) from None
    return bool(_call(doing, "ready", {"model": model_name, "version": version}))


def _check(function: str, *arguments: tuple[Any, type]) -> None:
    for value, kind in arguments:
        if not isinstance(value, kind):
            raise TypeError(f"{function}() takes a {kind.__name__} here, got {type(value)}")


def _call(doing: str, verb: str, arguments: dict[str, Any]) -> Any:
    instance.check_is_no_program()
    current = instance.here()
    call: Callable[[str, str], Any] | None = None if current is None else current.call
    if call is None:
        raise TritonModelException(
            f"{doing}: models are controlled from initialize() and execute() of a model that is "
            "being served, not from auto_complete_config() or finalize()"
        )
    try:
        document = json.dumps(arguments)
        if len(document) > wire.MAX_DOCUMENT:
            raise InvalidArgument(
                f"the request is too large, pass fewer files: {len(document)} bytes"
            )
        return call(verb, document)
    except ZmqTritonError as error:
        raise instance.refusal(doing, error.text) from None
