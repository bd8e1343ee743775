"""Loggers of other packages: the names of `zmqtriton_addons.pytriton.utils.logging`."""

from zmqtriton_addons.pytriton.utils.logging import *
