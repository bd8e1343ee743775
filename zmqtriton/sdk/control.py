"""Features of the supervisor: hooks, control calls, and the plan by which they act."""

from __future__ import annotations

from zmqtriton.supervisor.control.verbs import ControlCall, Verb, Verbs, at_once
from zmqtriton.supervisor.features.feature import CoreParts, Feature
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.story import Change, Promise, Story, result_of

__all__ = [
    "Change",
    "ControlCall",
    "CoreParts",
    "Feature",
    "Plan",
    "Promise",
    "Story",
    "Verb",
    "Verbs",
    "at_once",
    "result_of",
]
