"""The clients: the names of `zmqtriton_addons.pytriton.client.client`."""

from zmqtriton_addons.pytriton.client.client import *
