"""Workspaces, dataclasses, paths: the names of `zmqtriton.pytriton.utils`."""

from zmqtriton.pytriton.utils import *
