"""Webhooks: a client's receiver gets a signed POST when its job has ended.

`receivers.py` and `signatures.py` judge URLs, addresses and secrets, `records.py` keeps tries on
disk, `posting.py` makes one try, and `sending.py` makes all of them.
"""
