"""Affinity: requests that share something go to the instance that has it in its cache.

A step of frontends (`step.py`) makes a number of what the model's configuration names (`rule.py`);
the broker (`placement.py`) finds the instance of each number.
"""

from __future__ import annotations

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "affinity",
    problems=".problems:affinity_problems",
    warnings=".problems:affinity_warnings",
    placement=".placement:follow",
    model_steps=".step:steps_of",
)
