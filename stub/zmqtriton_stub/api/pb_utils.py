"""The public names of triton_python_backend_utils.

The modules that models import are in model_path/, and take all names in `__all__` from here.
"""

from zmqtriton_stub.api.bls import ResponseIterator
from zmqtriton_stub.api.errors import TritonError, TritonModelException
from zmqtriton_stub.api.functions import (
    TRITON_STRING_TO_NUMPY,
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_END,
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
    TRITONSERVER_RESPONSE_COMPLETE_FINAL,
    deserialize_bytes_tensor,
    get_backend_settings,
    get_input_config_by_name,
    get_input_tensor_by_name,
    get_model_dir,
    get_output_config_by_name,
    get_output_tensor_by_name,
    is_model_ready,
    load_model,
    make_directory,
    numpy_to_triton_type,
    serialize_byte_tensor,
    triton_string_to_numpy,
    triton_to_numpy_type,
    unload_model,
    using_decoupled_model_transaction_policy,
)
from zmqtriton_stub.api.inference import (
    TRITONSERVER_MEMORY_CPU,
    TRITONSERVER_MEMORY_GPU,
    TRITONSERVER_REQUEST_RELEASE_ALL,
    TRITONSERVER_REQUEST_RELEASE_RESCHEDULE,
    InferenceRequest,
    InferenceResponse,
    InferenceTrace,
    MemoryType,
    PreferredMemory,
)
from zmqtriton_stub.api.logger import Logger
from zmqtriton_stub.api.metrics import Metric, MetricFamily, MetricKind
from zmqtriton_stub.api.model_config import ModelConfig
from zmqtriton_stub.api.shared import shared
from zmqtriton_stub.api.tensor import Tensor
from zmqtriton_stub.execution.responses import InferenceResponseSender

__all__ = [
    "TRITONSERVER_MEMORY_CPU",
    "TRITONSERVER_MEMORY_GPU",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
    "TRITONSERVER_REQUEST_RELEASE_ALL",
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE",
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL",
    "TRITON_STRING_TO_NUMPY",
    "InferenceRequest",
    "InferenceResponse",
    "InferenceResponseSender",
    "InferenceTrace",
    "Logger",
    "MemoryType",
    "MetricFamily",
    "ModelConfig",
    "PreferredMemory",
    "ResponseIterator",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "deserialize_bytes_tensor",
    "get_backend_settings",
    "get_input_config_by_name",
    "get_input_tensor_by_name",
    "get_model_dir",
    "get_output_config_by_name",
    "get_output_tensor_by_name",
    "is_model_ready",
    "load_model",
    "make_directory",
    "numpy_to_triton_type",
    "serialize_byte_tensor",
    "shared",
    "triton_string_to_numpy",
    "triton_to_numpy_type",
    "unload_model",
    "using_decoupled_model_transaction_policy",
]

# where Triton has them: in what models print, and in what they pickle
for _class in (
    InferenceRequest,
    InferenceResponse,
    InferenceResponseSender,
    InferenceTrace,
    Logger,
    Metric,
    MetricFamily,
    MetricKind,
    PreferredMemory,
    ResponseIterator,
    Tensor,
    TritonError,
    TritonModelException,
):
    _class.__module__ = "c_python_backend_utils"
