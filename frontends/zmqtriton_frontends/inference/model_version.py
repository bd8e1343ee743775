"""One version of a model, as a frontend knows it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

from zmqtriton_floor.cache_keys import is_cached
from zmqtriton_floor.reasons import Kind
from zmqtriton_floor.signature import Signature
from zmqtriton_floor.wire import TrafficSplit, VersionInfo
from zmqtriton_frontends.inference.layouts import Layouts

#: Attributes that are made of a configuration at their first use: it may be large, and all clients
#: wait for it.
_READ_LATE = ("config", "signature")


class ModelVersion:
    """One version of a model; replaced as a whole by the next VersionInfo."""

    def __init__(self, news: VersionInfo, before: ModelVersion | None = None) -> None:
        """Apply the news; a configuration is parsed at its first use, an equal one not again."""
        self.name = news.model
        self.version = news.version
        self.generation = news.generation
        self.state = news.state
        #: Reason why it is not ready, or a newer one is not.
        self.reason = news.reason
        self.ready_instances = news.ready_instances
        #: The model has an is_ready, which is asked for its readiness.
        self.is_asked = bool(news.has_is_ready)
        #: The version is loaded on demand, so it need not be loaded for the server to be ready.
        self.is_on_demand = bool(news.is_on_demand)
        self.config_text = news.config
        self.config_proto = news.config_proto
        if before is not None and before.config_text == news.config:
            read = {name: vars(before)[name] for name in _READ_LATE if name in vars(before)}
            vars(self).update(read)
        #: Names of classes by output.
        self.labels: dict[str, list[str]] = json.loads(news.labels) if news.labels else {}
        #: Clients should ask elsewhere, though the version still answers.
        self.is_draining = bool(news.is_draining)
        #: Texts of files that add-ons read, by parameter.
        self.files: dict[str, str] = json.loads(news.files) if news.files else {}
        #: Answers are kept in the response cache, for equal requests.
        self.is_cached = self._mentions("response_cache") and is_cached(self.config)
        #: Inputs of requests to it may be looked up: in its own cache, or for a member.
        self.is_hashed = self.is_cached
        #: The version that gets a part of the requests to this one; None unless those that name
        #: no version are divided.
        self.trial: Trial | None = None
        #: Requests to it may be parts of sequences: its own, or a member's.
        self.has_sequences = self._mentions("sequence_batching") and has_sequences(self.config)
        #: Layouts of the bodies that come to it over HTTP.
        self.layouts = Layouts()
        #: Documents of answers over HTTP that bytes alone follow, by the outputs but their data.
        self.answers: dict[Any, bytes] = {}
        #: Steps of requests to it alone.
        self.steps: tuple[Any, ...] = ()

    def _mentions(self, field: str) -> bool:
        """Return False if the configuration surely lacks this field."""
        return field in self.config_text

    @cached_property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = json.loads(self.config_text) if self.config_text else {}
        return config

    @cached_property
    def signature(self) -> Signature:
        return Signature(self.config or {"name": self.name})

    @property
    def is_ensemble(self) -> bool:
        return self._mentions("ensemble_scheduling") and "ensemble_scheduling" in self.config

    @property
    def is_loaded(self) -> bool:
        """True if requests are taken; they may have to wait for an instance."""
        return self.state == "READY" and self.generation != 0

    @property
    def reason_text(self) -> str:
        return self.reason.text if self.reason else ""

    @property
    def is_given_up(self) -> bool:
        """True if the version has served, and its instances died too often."""
        return not self.is_loaded and self.reason is not None and self.reason.has(Kind.GIVEN_UP)

    @property
    def is_unloaded(self) -> bool:
        """True if the version was unloaded on request."""
        return self.reason is not None and self.reason.kind == Kind.UNLOADED

    @property
    def may_be_missing(self) -> bool:
        """True if the server is ready without this version."""
        is_meant = self.is_unloaded or (self.is_on_demand and not self.is_loaded)
        return is_meant or self.is_draining

    @property
    def is_ready(self) -> bool:
        """True if an instance could execute now, and clients should ask."""
        return self.is_loaded and self.ready_instances > 0 and not self.is_draining


class Trial(NamedTuple):
    """A version on trial, and its share of the requests that name no version."""

    split: TrafficSplit
    version: ModelVersion
    #: The names of the headers that choose it, and that keep a client's choice, as requests have
    #: them.
    header: bytes
    sticky: bytes


def has_sequences(config: Mapping[str, Any]) -> bool:
    """True if requests to a model belong together; those to an iterative one are independent."""
    batching = config.get("sequence_batching")
    return batching is not None and not batching.get("iterative_sequence")
