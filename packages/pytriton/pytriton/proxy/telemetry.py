"""Spans of OpenTelemetry: the names of `zmqtriton.pytriton.proxy.telemetry`."""

from zmqtriton.pytriton.proxy.telemetry import *
