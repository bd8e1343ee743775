"""Diagnosis: faults of models, of a machine or of a running server, and their remedies.

`check` looks into directories of models, `doctor` at a machine, `explain` at a running server. They
share sources of facts, rules, and one form of a finding (`zmqtriton.findings`). Nothing here
decides what a server accepts, and nothing changes a server. Add-ons offer more: `hooks`.
"""
