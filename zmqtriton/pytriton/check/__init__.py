"""Checks of an installation: the names of `zmqtriton_addons.pytriton.check`."""

from zmqtriton_addons.pytriton.check import *
