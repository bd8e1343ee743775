"""Waiting in coroutines: the names of `zmqtriton_addons.pytriton.client.asyncio_utils`."""

from zmqtriton_addons.pytriton.client.asyncio_utils import *
