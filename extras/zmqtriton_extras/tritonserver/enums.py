"""The enumerations and errors of the in-process API, with Triton's names and numbers."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager

from zmqtriton.sdk.wire import ZmqTritonError


class TritonError(Exception):
    """Base of all errors: the text, and the response if the error came as one."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class UnknownError(TritonError):
    """Any error without a class of its own, such as a cancelled request."""


class InternalError(TritonError):
    """Raised when the server or a model has failed."""


class NotFoundError(TritonError):
    """Raised when a model, a version or a file does not exist."""


class InvalidArgumentError(TritonError):
    """Raised when a call or a request is wrong."""


class UnavailableError(TritonError):
    """Raised when the same call could succeed later."""


class UnsupportedError(TritonError):
    """Raised when a call is understood but not supported."""


class AlreadyExistsError(TritonError):
    """Raised when a name is taken."""


_BY_CODE: dict[str, type[TritonError]] = {
    "INTERNAL": InternalError,
    "NOT_FOUND": NotFoundError,
    "INVALID_ARG": InvalidArgumentError,
    "UNAVAILABLE": UnavailableError,
    "UNSUPPORTED": UnsupportedError,
    "ALREADY_EXISTS": AlreadyExistsError,
}


def translate(error: ZmqTritonError) -> TritonError:
    """Return the error of this API for an error of the server."""
    return _BY_CODE.get(error.code, UnknownError)(error.text)


@contextmanager
def translation() -> Iterator[None]:
    """Raise the server's errors as errors of this API."""
    try:
        yield
    except ZmqTritonError as error:
        raise translate(error) from error


class _Number(enum.Enum):
    """A named number of Triton's C API."""

    def __int__(self) -> int:
        return int(self.value)

    __index__ = __int__


class DataType(_Number):
    INVALID = 0
    BOOL = 1
    UINT8 = 2
    UINT16 = 3
    UINT32 = 4
    UINT64 = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FP16 = 10
    FP32 = 11
    FP64 = 12
    BYTES = 13
    BF16 = 14


class MemoryType(_Number):
    CPU = 0
    CPU_PINNED = 1
    GPU = 2


class DLDeviceType(enum.IntEnum):
    """The devices of DLPack."""

    kDLCPU = 1
    kDLCUDA = 2
    kDLCUDAHost = 3
    kDLOpenCL = 4
    kDLVulkan = 7
    kDLMetal = 8
    kDLVPI = 9
    kDLROCM = 10
    kDLROCMHost = 11
    kDLExtDev = 12
    kDLCUDAManaged = 13
    kDLOneAPI = 14
    kDLWebGPU = 15
    kDLHexagon = 16


class ModelControlMode(_Number):
    NONE = 0
    POLL = 1
    EXPLICIT = 2


class RateLimitMode(_Number):
    OFF = 0
    EXEC_COUNT = 1


class InstanceGroupKind(_Number):
    AUTO = 0
    CPU = 1
    GPU = 2
    MODEL = 3


class LogFormat(_Number):
    DEFAULT = 0
    ISO8601 = 1


class LogLevel(_Number):
    INFO = 0
    WARN = 1
    ERROR = 2
    VERBOSE = 3


class MetricFormat(_Number):
    PROMETHEUS = 0


class MetricKind(_Number):
    COUNTER = 0
    GAUGE = 1


class ModelBatchFlag(_Number):
    UNKNOWN = 1
    FIRST_DIM = 2


class ModelTxnPropertyFlag(_Number):
    ONE_TO_ONE = 1
    DECOUPLED = 2


class ModelIndexFlag(enum.IntFlag):
    READY = 1


class RequestFlag(enum.IntFlag):
    """The flags of a sequence's request; they can be combined."""

    SEQUENCE_START = 1
    SEQUENCE_END = 2


class RequestReleaseFlag(enum.IntFlag):
    ALL = 1


class ResponseCompleteFlag(enum.IntFlag):
    FINAL = 1


class ParameterType(_Number):
    STRING = 0
    INT = 1
    BOOL = 2
    BYTES = 3
    DOUBLE = 4


class InferenceTraceLevel(enum.IntFlag):
    DISABLED = 0
    MIN = 1
    MAX = 2
    TIMESTAMPS = 4
    TENSORS = 8


class InferenceTraceActivity(_Number):
    REQUEST_START = 0
    QUEUE_START = 1
    COMPUTE_START = 2
    COMPUTE_INPUT_END = 3
    COMPUTE_OUTPUT_START = 4
    COMPUTE_END = 5
    REQUEST_END = 6
    TENSOR_QUEUE_INPUT = 7
    TENSOR_BACKEND_INPUT = 8
    TENSOR_BACKEND_OUTPUT = 9
