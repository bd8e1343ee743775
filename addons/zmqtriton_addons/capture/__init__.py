"""Capture: records of requests and their responses on disk, which are shown and sent again.

`step.py` sends requests that a frontend sees to a process of its own (`process/`), which writes
records (`records.py`). `showing.py` prints them, `replaying.py` sends them again.
"""
