"""Checks of an installation: the names of `zmqtriton.pytriton.check`."""

from zmqtriton.pytriton.check import *
