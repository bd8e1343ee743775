"""Request: the names of `zmqtriton.pytriton.proxy.types`."""

from zmqtriton.pytriton.proxy.types import *
