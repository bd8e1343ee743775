"""Headers with access tokens: the names of `zmqtriton_addons.pytriton.client.auth`."""

from zmqtriton_addons.pytriton.client.auth import *
