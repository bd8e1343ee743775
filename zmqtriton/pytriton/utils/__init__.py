"""Workspaces, dataclasses, paths: the names of `zmqtriton_addons.pytriton.utils`."""

from zmqtriton_addons.pytriton.utils import *
