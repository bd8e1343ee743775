"""The commands that ask models as clients do."""

from __future__ import annotations

from zmqtriton.ctl.benching.command import bench
from zmqtriton.ctl.inferring.command import infer

CLIENT_COMMANDS = (bench, infer)
