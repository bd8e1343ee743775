"""The tokens of jobs: a job has the name of its client's, and what that is good for when it runs.

A token whose line has left the file, or that has expired, fails its jobs.
"""

from __future__ import annotations

from collections.abc import Sequence

from zmqtriton_floor.access.token_file import Grant
from zmqtriton_frontends.access import refusals
from zmqtriton_frontends.access.bearer_tokens import BearerTokens, check_target
from zmqtriton_frontends.access.refusals import Forbidden, Unauthenticated


class JobTokens(BearerTokens):
    """Finds grants by the name that stands in place of the secret; only this process asks."""

    def find(self, values: Sequence[str]) -> Grant | None:
        name = values[0] if values else ""
        return next((grant for grant in self._valid.values() if grant.name == name), None)

    def check(
        self, values: Sequence[str], address: str, need: str, model: str | None = None
    ) -> Grant:
        grant = self.find(values)
        if grant is None:
            raise Unauthenticated("The job's token is not valid any more", refusals.UNKNOWN)
        if need not in grant.scopes:
            raise Forbidden(f"The token is not good for this, expecting scope '{need}'", need)
        if model is not None:
            check_target(grant, need, model)
        return grant
