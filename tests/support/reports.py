"""A reporter that remembers what it hears of long steps."""

from __future__ import annotations

from zmqtriton.long_steps import StepProgress


class Reports:
    """The lines for the log, and how far steps were, in order."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self.steps: list[StepProgress] = []

    def log(self, level: str, text: str) -> None:
        self.lines.append((level, text))

    def progress(self, latest: StepProgress) -> None:
        self.steps.append(latest)

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.lines]
