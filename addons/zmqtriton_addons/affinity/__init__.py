"""Affinity: requests that share something go to the instance that has it in its cache.

A step of frontends (`step.py`) makes a number of what the model's configuration names (`rule.py`);
the broker (`placement.py`) finds the instance of each number.
"""
