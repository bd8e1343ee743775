"""The API of models: the classes and functions of triton_python_backend_utils."""

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

if TYPE_CHECKING:
    from zmqtriton_stub.api.errors import TritonError, TritonModelException, reason_of
    from zmqtriton_stub.api.inference import InferenceResponse
    from zmqtriton_stub.api.tensor import Tensor
else:
    __getattr__ = lazy_names(__name__)
