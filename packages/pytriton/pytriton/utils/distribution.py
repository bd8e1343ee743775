"""Paths of the package: the names of `zmqtriton.pytriton.utils.distribution`."""

from zmqtriton.pytriton.utils.distribution import *
