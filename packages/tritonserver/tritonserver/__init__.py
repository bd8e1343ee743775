"""Triton's in-process Python API on zmqtriton; the code is in `zmqtriton_addons.tritonserver`."""

from zmqtriton_addons.tritonserver import *
from zmqtriton_floor import TRITON_VERSION

#: The version of Triton whose API this is.
__version__ = TRITON_VERSION
