"""Dataclasses set by name: the names of `zmqtriton_addons.pytriton.utils.dataclasses`."""

from zmqtriton_addons.pytriton.utils.dataclasses import *
