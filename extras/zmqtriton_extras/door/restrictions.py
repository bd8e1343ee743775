"""The option that requires keys of clients of the door."""

from __future__ import annotations

from zmqtriton.options.values import CATEGORIES, restriction

read = restriction("--zmq-door-restricted", "verb", "", CATEGORIES)
