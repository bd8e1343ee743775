"""The access log: a line of JSON for each request, whatever its protocol.

`step.py` makes the lines in each frontend; `process/` writes them to the file.
"""
