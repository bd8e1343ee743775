"""Features of the supervisor: their hooks, control calls, and the plan that they act through."""

from zmqtriton.supervisor.control.verbs import ControlCall, Verb, Verbs
from zmqtriton.supervisor.features.feature import CoreParts, Feature
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.story import Change, Promise, Result, Story, all_of, kept, tell

__all__ = [
    "Change",
    "ControlCall",
    "CoreParts",
    "Feature",
    "Plan",
    "Promise",
    "Result",
    "Story",
    "Verb",
    "Verbs",
    "all_of",
    "kept",
    "tell",
]
