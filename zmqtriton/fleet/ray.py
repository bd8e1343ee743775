"""A fleet on a cluster of Ray: the names of `zmqtriton_addons.fleet.ray`."""

from zmqtriton_addons.fleet.ray import *
