"""Triton's in-process Python API on zmqtriton; the code is in `zmqtriton_extras.tritonserver`."""

from zmqtriton_extras.tritonserver.api import *
from zmqtriton_floor import TRITON_VERSION

#: The version of Triton whose API this is.
__version__ = TRITON_VERSION
