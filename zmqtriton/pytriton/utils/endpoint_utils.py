"""Addresses by options: the names of `zmqtriton_addons.pytriton.utils.endpoint_utils`."""

from zmqtriton_addons.pytriton.utils.endpoint_utils import *
