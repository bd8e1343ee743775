"""Options of servers for models of backends."""

from __future__ import annotations

#: All models are loaded at the start, more on request, and those that fail keep no other from
#: serving.
DESPITE_FAILURES = (
    "--model-control-mode=explicit",
    "--load-model=*",
    "--exit-on-error=false",
    "--strict-readiness=false",
)
