"""The operator's labels on all samples of a page of metrics.

A sample that has a label of the same name, such as a model's own metric, keeps its own value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from zmqtriton_addons.metrics.model_metrics import escape

#: The name of a sample, and its labels if there are some.
_SAMPLE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})?', re.M)


def add(page: str, labels: Sequence[tuple[str, str]]) -> str:
    """Return the page with these labels, which are the first of each sample: `le` stays last."""
    if not labels:
        return page
    pairs = [(f'{name}="', f'{name}="{escape(value)}"') for name, value in labels]

    def with_labels(match: re.Match[str]) -> str:
        own = (match[2] or "{}")[1:-1]
        # a quotation mark in a value is escaped, so that no value looks like a label
        missing = [text for head, text in pairs if f",{head}" not in f",{own}"]
        return f"{match[1]}{{{','.join([*missing, own] if own else missing)}}}"

    return _SAMPLE.sub(with_labels, page)
