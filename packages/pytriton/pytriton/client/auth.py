"""Headers with access tokens: the names of `zmqtriton.pytriton.client.auth`."""

from zmqtriton.pytriton.client.auth import *
