"""Tokens of models that make text, as metrics with the names of vLLM's dashboards.

`step.py` sees the responses in each frontend; `service.py` adds up what all of them have seen, and
`figures.py` asks it for the page.
"""

#: The name of the service, of its socket in the runtime directory, and of the option.
SERVICE = "token_metrics"
#: Asks its process for the text of the page.
QUESTION = b"?"
