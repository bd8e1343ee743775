"""The operator's labels on all samples of a page of metrics.

A sample that has a label of the same name, such as a model's own metric, keeps its own value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from zmqtriton_standard.metrics.model_metrics import escape

#: The name of a sample, and its labels if there are some.
_SAMPLE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})?', re.M)
#: The name of a label; its value is skipped, whatever it has.
_NAME = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="(?:[^"\\]|\\.)*"')


def add(page: str, labels: Sequence[tuple[str, str]]) -> str:
    """Return the page with these labels, which are the first of each sample: `le` stays last."""
    if not labels:
        return page
    pairs = [(name, f'{name}="{escape(value)}"') for name, value in labels]

    def with_labels(match: re.Match[str]) -> str:
        own = (match[2] or "{}")[1:-1]
        names = _NAME.findall(own)
        missing = [text for name, text in pairs if name not in names]
        return f"{match[1]}{{{','.join([*missing, own] if own else missing)}}}"

    return _SAMPLE.sub(with_labels, page)
