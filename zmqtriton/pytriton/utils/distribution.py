"""Paths of the package: the names of `zmqtriton_addons.pytriton.utils.distribution`."""

from zmqtriton_addons.pytriton.utils.distribution import *
