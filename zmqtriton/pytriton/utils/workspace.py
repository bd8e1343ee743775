"""Directories of servers: the names of `zmqtriton_addons.pytriton.utils.workspace`."""

from zmqtriton_addons.pytriton.utils.workspace import *
