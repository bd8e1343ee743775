"""The module that models import as pb_utils. Its classes are those of c_python_backend_utils."""

# models have been seen to use these three from here
import json
import struct

import numpy as np

from zmqtriton_stub.api import pb_utils
from zmqtriton_stub.api.pb_utils import *  # noqa: F403 - all that is public there, and nothing else

__all__ = [*pb_utils.__all__, "json", "np", "struct"]
