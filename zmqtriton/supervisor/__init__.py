"""The control plane: what should run, what runs, and what follows from the difference.

`core` is the brain and does no I/O; `service` is the loop that performs what it decides.
"""
