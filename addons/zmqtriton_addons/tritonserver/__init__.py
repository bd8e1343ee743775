"""Triton's in-process Python API over a server that this process starts."""

from __future__ import annotations

from zmqtriton_addons.tritonserver.enums import (
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
from zmqtriton_addons.tritonserver.metrics import Metric, MetricFamily
from zmqtriton_addons.tritonserver.model import Model
from zmqtriton_addons.tritonserver.options import (
    ModelLoadDeviceLimit,
    Options,
    RateLimiterResource,
)
from zmqtriton_addons.tritonserver.responses import (
    AsyncResponseIterator,
    InferenceRequest,
    InferenceResponse,
    ResponseIterator,
)
from zmqtriton_addons.tritonserver.server import ModelDictionary, Server
from zmqtriton_addons.tritonserver.tensor import MemoryBuffer, Tensor

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
