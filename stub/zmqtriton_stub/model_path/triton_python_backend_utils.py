"""The name under which models import pb_utils: one module, one identity of each class."""

from __future__ import annotations

import sys

import zmqtriton_stub.pb_utils

sys.modules[__name__] = zmqtriton_stub.pb_utils
