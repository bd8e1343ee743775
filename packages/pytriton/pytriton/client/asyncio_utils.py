"""Waiting in coroutines: the names of `zmqtriton.pytriton.client.asyncio_utils`."""

from zmqtriton.pytriton.client.asyncio_utils import *
