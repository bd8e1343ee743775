"""Features of the supervisor: their hooks, control calls, and the plan that they act through."""

from zmqtriton.supervisor.control.verbs import ControlCall, Verb, Verbs
from zmqtriton.supervisor.features.feature import CoreParts, Feature
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.story import All, Change, Promise, Scope, Story, kept

__all__ = [
    "All",
    "Change",
    "ControlCall",
    "CoreParts",
    "Feature",
    "Plan",
    "Promise",
    "Scope",
    "Story",
    "Verb",
    "Verbs",
    "kept",
]
