"""The settings of a fleet: the names of `zmqtriton_addons.fleet.building`."""

from zmqtriton_addons.fleet.building import *
