"""The form of requests and answers between a process of templates and its parent."""

from __future__ import annotations

#: Requests and answers begin with their length.
LENGTH_BYTES = 4
#: What came of a request; an answer begins with its number.
OUTCOMES = ("prompt", "messages", "internal", "InvalidArgument", "Unsupported")
#: What a process says first, when it can render.
READY = b"ready\n"
