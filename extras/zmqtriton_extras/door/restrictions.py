"""The option that requires keys from clients of the door."""

from __future__ import annotations

from zmqtriton.sdk.process import options

read = options.restriction("--zmq-door-restricted", "verb", "", options.CATEGORIES)
