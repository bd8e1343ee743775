"""Addresses by options: the names of `zmqtriton.pytriton.utils.endpoint_utils`."""

from zmqtriton.pytriton.utils.endpoint_utils import *
