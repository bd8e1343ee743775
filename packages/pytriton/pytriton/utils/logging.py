"""Loggers of other packages: the names of `zmqtriton.pytriton.utils.logging`."""

from zmqtriton.pytriton.utils.logging import *
