"""The part of pb_utils that is a C module in Triton, where models find a few more names."""

from zmqtriton_stub.api import pb_utils
from zmqtriton_stub.api.functions import SharedMemory, shared_memory
from zmqtriton_stub.api.metrics import Metric, MetricKind
from zmqtriton_stub.api.pb_utils import *  # noqa: F403 - all that is public there, and nothing else

__all__ = [*pb_utils.__all__, "Metric", "MetricKind", "SharedMemory", "shared_memory"]
