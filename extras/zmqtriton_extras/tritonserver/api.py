"""Triton's in-process Python API over a server that this process starts."""

from __future__ import annotations

from zmqtriton_extras.tritonserver.enums import (
    AlreadyExistsError,
    DataType,
    DLDeviceType,
    InstanceGroupKind,
    InternalError,
    InvalidArgumentError,
    LogFormat,
    LogLevel,
    MemoryType,
    MetricFormat,
    MetricKind,
    ModelBatchFlag,
    ModelControlMode,
    ModelTxnPropertyFlag,
    NotFoundError,
    RateLimitMode,
    TritonError,
    UnavailableError,
    UnknownError,
    UnsupportedError,
)
from zmqtriton_extras.tritonserver.metrics import Metric, MetricFamily
from zmqtriton_extras.tritonserver.model import Model
from zmqtriton_extras.tritonserver.options import (
    ModelLoadDeviceLimit,
    Options,
    RateLimiterResource,
)
from zmqtriton_extras.tritonserver.responses import (
    AsyncResponseIterator,
    InferenceRequest,
    InferenceResponse,
    ResponseIterator,
)
from zmqtriton_extras.tritonserver.server import ModelDictionary, Server
from zmqtriton_extras.tritonserver.tensor import MemoryBuffer, Tensor

__all__ = [
    "AlreadyExistsError",
    "AsyncResponseIterator",
    "DLDeviceType",
    "DataType",
    "InferenceRequest",
    "InferenceResponse",
    "InstanceGroupKind",
    "InternalError",
    "InvalidArgumentError",
    "LogFormat",
    "LogLevel",
    "MemoryBuffer",
    "MemoryType",
    "Metric",
    "MetricFamily",
    "MetricFormat",
    "MetricKind",
    "Model",
    "ModelBatchFlag",
    "ModelControlMode",
    "ModelDictionary",
    "ModelLoadDeviceLimit",
    "ModelTxnPropertyFlag",
    "NotFoundError",
    "Options",
    "RateLimitMode",
    "RateLimiterResource",
    "ResponseIterator",
    "Server",
    "Tensor",
    "TritonError",
    "UnavailableError",
    "UnknownError",
    "UnsupportedError",
]
