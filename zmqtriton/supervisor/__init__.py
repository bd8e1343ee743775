"""The control plane: the models and processes that should run, and the steps towards them.

`core` decides and does no I/O; `service` is the loop that performs its decisions.
"""
