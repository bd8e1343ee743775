"""The clients: the names of `zmqtriton.pytriton.client.client`."""

from zmqtriton.pytriton.client.client import *
