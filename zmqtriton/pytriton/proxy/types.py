"""Request: the names of `zmqtriton_addons.pytriton.proxy.types`."""

from zmqtriton_addons.pytriton.proxy.types import *
