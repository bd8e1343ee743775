"""Spans of OpenTelemetry: the names of `zmqtriton_addons.pytriton.proxy.telemetry`."""

from zmqtriton_addons.pytriton.proxy.telemetry import *
