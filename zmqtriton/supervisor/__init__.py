"""The control plane: what should run, what does run, and what to do about the difference.

`core` decides and does no I/O; `service` is the loop that performs its decisions.
"""
