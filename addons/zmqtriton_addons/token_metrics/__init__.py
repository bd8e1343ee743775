"""Tokens of models that make text: metrics by the names of dashboards, and limits of clients.

`step.py` sees the responses in each frontend, and refuses clients who have used up what their
bearer tokens allow; `service.py` adds up what all frontends have seen, and tells them who has.
`figures.py` asks it for the page, `rates.py` for tokens per second.
"""

#: The name of the service, of its socket in the runtime directory, and of the option.
SERVICE = "token_metrics"
#: Ask its process for the text of the page, and for the sums by `model:version`.
QUESTION, SUMS = b"?", b"sums"
