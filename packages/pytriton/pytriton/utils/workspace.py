"""Directories of servers: the names of `zmqtriton.pytriton.utils.workspace`."""

from zmqtriton.pytriton.utils.workspace import *
