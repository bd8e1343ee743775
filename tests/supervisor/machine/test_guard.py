"""Descriptors that are ready in the same moment."""

from __future__ import annotations

import os
import selectors

from zmqtriton.supervisor.machine.guard import call_ready


def test_what_is_unregistered_amid_its_moment_is_not_called_nor_is_who_has_its_number() -> None:
    with selectors.DefaultSelector() as selector:
        pipes = {name: os.pipe() for name in ("first", "second")}
        called: list[str] = []

        def bury(name: str) -> None:
            """Ends the other one, of which nothing was read; its number is given away."""
            called.append(name)
            other = pipes["second" if name == "first" else "first"][0]
            selector.unregister(other)
            os.dup2(pipes[name][0], other)
            selector.register(other, selectors.EVENT_READ, lambda: called.append("stranger"))

        for name, (reading, writing) in pipes.items():
            os.write(writing, b"!")
            selector.register(reading, selectors.EVENT_READ, lambda name=name: bury(name))

        ready = selector.select(10)
        assert 2 == len(ready)
        call_ready(selector, ready)

        assert 1 == len(called)
        for descriptor in sum(pipes.values(), ()):
            os.close(descriptor)
