"""Inspection: what a model is doing, seen from inside its process while it serves.

A feature of the supervisor (`feature.py`) has instances run a task (`sampler.py`), whose samples
the command (`command.py`) turns into lines, a flame graph and files for other programs.
"""

from __future__ import annotations

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "inspection",
    title="Inspection",
    tasks={"profile": ".sampler:sample"},
    http=".extension:EXTENSION",
    feature=".feature:Profiles",
    findings=".explaining",
    ctl={"profile": ".command:profile"},
)
