"""Inspection: what a model is doing, seen from inside its process while it serves.

A feature of the supervisor (`feature.py`) lets instances run a task (`sampler.py`, `growth.py`),
and commands turn the results into lines, a flame graph and files.
"""

from __future__ import annotations

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "inspection",
    needs=(
        "cockpit",
        "ctl",
        "memory",
    ),
    title="Inspection",
    ctl={
        "profile": ".command:profile",
        "memory": ".memory_command:memory",
        "debug": ".debug_command:debug",
    },
    offers={
        "ctl.group": {"Debug a model": "debug memory profile"},
        "stub.task": {
            "profile": ".sampler:sample",
            "memory": ".growth:measure",
            "debug": ".debugger:debug",
            "debug_here": ".debugger:debug_here",
            "debug_again": ".debugger:debug_again",
        },
        "http.extension": ".extension:EXTENSION",
        "supervisor.feature": (".feature:Inspections", ".debugging:Debugging"),
        "diagnosis.model": ".explaining",
    },
)
