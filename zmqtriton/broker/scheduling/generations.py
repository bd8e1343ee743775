"""All generations that the broker serves, by number and by name.

Knows neither peers nor clocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from zmqtriton.broker.metrics.statistics import Clock, TrialTimes, no_clock
from zmqtriton.broker.scheduling.execution_rate import ExecutionRate, SharedRate
from zmqtriton.broker.scheduling.generation import BrokerGeneration
from zmqtriton.broker.scheduling.instances import Instance
from zmqtriton.broker.scheduling.scheduler import Scheduler
from zmqtriton_floor import lazy_names, wire
from zmqtriton_floor.cache_keys import is_cached
from zmqtriton_floor.errors import Unavailable, Unsupported
from zmqtriton_floor.metrics import MetricsConfig
from zmqtriton_floor.routing import goes_to_trial, inside, is_copied
from zmqtriton_floor.settings.broker import BrokerSettings
from zmqtriton_floor.settings.offers import Hook

MAX_DEPARTED = 256
#: Changes how a scheduler chooses instances. The offer's name is a parameter in `config.pbtxt`: the
#: function is called for models that have it.
PLACEMENT = Hook[Callable[[Scheduler], None]]("broker.placement")


class Departed(NamedTuple):
    """A generation that was removed; requests for it may still be on their way."""

    model: str
    version: int
    interface: list[Any]
    #: True if all its requests were answered before it was removed; False if it failed.
    is_drained: bool


class NotServed(Unavailable):
    """Raised if no loaded generation of a model can take the request."""

    def __init__(self, text: str, model: str) -> None:
        super().__init__(text)
        self.model = model


class GenerationRegistry:
    def __init__(self) -> None:
        self.by_number: dict[int, BrokerGeneration] = {}
        #: Schedulers by generation number. The one of a removed generation stays until its requests
        #: have been refused.
        self.schedulers: dict[int, Scheduler] = {}
        self._by_name: dict[str, dict[int, BrokerGeneration]] = {}
        self._metrics = MetricsConfig()
        self._clock: Clock = no_clock
        #: Number of requests that must wait before a model with a batcher begins; 0: it begins with
        #: the first.
        self._held_requests = 0
        #: References to functions that return another placement for a scheduler, by the model
        #: parameters that ask for them.
        self._placements: dict[str, str] = {}
        #: True if there are, or were, models whose inputs may be on a GPU.
        self.any_takes_gpu = False
        #: The models whose requests are divided between two versions.
        self._splits: dict[str, wire.TrafficSplit] = {}
        #: The versions that the sequences of a model may be in, because it was divided.
        self._divided: dict[str, set[int]] = {}
        #: The generations that were removed last, by their numbers.
        self._departed: dict[int, Departed] = {}

    def configure(self, settings: BrokerSettings, clock: Clock) -> None:
        """Serve and count from now on as the settings of the Bootstrap require."""
        self._metrics, self._clock = settings.metrics, clock
        self._held_requests = settings.held_requests
        self._placements = PLACEMENT.named_in(settings.offers)

    def add_or_update(self, message: wire.AddGeneration) -> BrokerGeneration:
        generation = self.by_number.get(message.generation)
        if generation is not None:
            generation.regroup(message.config)
            return generation
        new = BrokerGeneration(message.generation, message.model, message.version, message.config)
        new.measure(self._metrics, self._clock)
        scheduler = Scheduler(new)
        for parameter in self._placements.keys() & new.config.get("parameters", {}).keys():
            place = lazy_names.load_reference(self._placements[parameter])
            scheduler.placement = place(scheduler) or scheduler.placement
        scheduler.hold_back(self._held_requests)
        if new.max_executions_per_second:
            scheduler.rate = ExecutionRate(self._shared_rate(new))
        self.by_number[new.number], self.schedulers[new.number] = new, scheduler
        self.any_takes_gpu |= new.takes_gpu
        self._by_name.setdefault(new.model, {})[new.version] = new
        self._measure(new)
        return new

    def _shared_rate(self, new: BrokerGeneration) -> SharedRate:
        """Return the shared rate of all generations of a model, with the newest one's limit."""
        per_second = new.max_executions_per_second
        siblings = (s for s in self.schedulers.values() if s.generation.model == new.model)
        rates = (s.rate for s in siblings if s.rate is not None)
        shared = next((rate.shared for rate in rates), None) or SharedRate(per_second)
        shared.per_second = per_second
        return shared

    def remove(self, number: int) -> BrokerGeneration | None:
        """Remove a generation and return it."""
        removed = self.by_number.pop(number, None)
        if removed is None:
            return None
        kept = removed.model, removed.version, removed.interface, removed.is_drained
        self._departed[number] = Departed(*kept)
        if len(self._departed) > MAX_DEPARTED:
            del self._departed[next(iter(self._departed))]
        versions = self._by_name.get(removed.model, {})
        if versions.get(removed.version) is removed:
            del versions[removed.version]
        if not versions:
            self._by_name.pop(removed.model, None)
            self._divided.pop(removed.model, None)
        return removed

    def divide(self, split: wire.TrafficSplit) -> None:
        """Divide a model's requests that name no version as the message says."""
        if split.stable:
            self._splits[split.model] = split
            self._divided.setdefault(split.model, set()).update((split.stable, split.tried))
        else:
            self._splits.pop(split.model, None)
        for generation in self._by_name.get(split.model, {}).values():
            self._measure(generation)

    def _measure(self, generation: BrokerGeneration) -> None:
        """Keep the times of a version as long as it is compared with another one."""
        split, counters = self._splits.get(generation.model), generation.statistics
        if split is None or generation.version not in (split.stable, split.tried):
            counters.trial = None
        elif counters.trial is None:
            counters.trial = TrialTimes()

    def feeds_cache(self, model: str, version: int) -> bool:
        """True if a request's inputs may be looked up in the cache.

        The model has a cache, or is an ensemble with a member that has one.
        """
        return any(map(is_cached, inside(self._config, model, version)))

    def _config(self, model: str, version: int) -> dict[str, Any] | None:
        newest = self.newest(model, version)
        return newest.config if newest is not None else None

    def silent_instances(self, model: str) -> list[Instance]:
        """Return the stubs of a model that have yet to report about an earlier broker."""
        schedulers = (s for s in self.schedulers.values() if s.generation.model == model)
        return [i for s in schedulers for i in s.instances.values() if not i.has_arrived]

    def find(self, row: wire.Request) -> BrokerGeneration:
        """Find the generation that a request goes to. Raises Triton's errors."""
        candidate = self.by_number.get(row.generation)
        generation = (
            self._find(row, candidate) if candidate is None or candidate.is_drained else candidate
        )
        if not generation.has_sequences:
            return generation
        return self._find_sequence_generation(row, generation)

    def has_successor(self, generation: BrokerGeneration) -> bool:
        """True if a request for an open sequence of this generation can still be served."""
        return any(
            not last.is_retired
            and self.share_sequences(generation, last)
            and self._takes_the_same(generation, last)
            for last in self._by_name.get(generation.model, {}).values()
        )

    def _takes_the_same(self, one: BrokerGeneration | Departed, other: BrokerGeneration) -> bool:
        """True if requests that were checked against one generation fit the other one."""
        is_divided = one.version != other.version and self.share_sequences(one, other)
        return is_divided or one.interface == other.interface

    def replaced(self, generation: BrokerGeneration) -> list[BrokerGeneration]:
        """Return the earlier generations of the model that are still ending."""
        return [
            other
            for other in self.by_number.values()
            if other is not generation
            and other.is_retired
            and self.share_sequences(other, generation)
        ]

    def share_sequences(self, one: BrokerGeneration | Departed, other: BrokerGeneration) -> bool:
        """True if a sequence of one generation continues there for requests that name the other.

        The versions of a divided model take the same requests: the supervisor has compared them.
        """
        if one.model != other.model:
            return False
        return one.version == other.version or {one.version, other.version} <= self._divided.get(
            one.model, set()
        )

    def _find_sequence_generation(
        self, row: wire.Request, generation: BrokerGeneration
    ) -> BrokerGeneration:
        """Find the generation of a sequence: the one where it began, or the newest if it starts."""
        if row.flags & wire.SEQUENCE_START:
            other = self._find_other(row, generation) if generation.is_retired else None
            return other or generation
        sequences = self.schedulers[generation.number].sequences
        if sequences is not None and sequences.knows(row.correlation):
            return generation
        for earlier in reversed(self.by_number.values()):
            sequences = self.schedulers[earlier.number].sequences
            is_kin = self.share_sequences(earlier, generation)
            if is_kin and sequences is not None and sequences.knows(row.correlation):
                return generation if earlier.is_drained else earlier
        return generation

    def _find(self, row: wire.Request, drained: BrokerGeneration | None) -> BrokerGeneration:
        """Find the generation that replaces a removed or drained one.

        A frontend may name an old one: it has not heard of a reload yet, or had to make memory
        first.
        """
        if not row.generation:
            return self._find_by_name(row)
        gone = drained or self._departed.get(row.generation)
        other = self._find_other(row, gone) if gone is not None else None
        if other is None:
            text = "the model was unloaded while the request was on its way"
            raise NotServed(text, gone.model if gone is not None and gone.is_drained else "")
        return other

    def _find_other(
        self, row: wire.Request, gone: BrokerGeneration | Departed
    ) -> BrokerGeneration | None:
        """Find a generation that takes the same requests: loaded after this one, or next to it."""
        other = self.newest(gone.model, -1 if row.flags & wire.ANY_VERSION else gone.version)
        return other if other is not None and self._takes_the_same(gone, other) else None

    def _find_by_name(self, row: wire.Request) -> BrokerGeneration:
        """Find a generation for a model's call, which has only the name of the other model."""
        model = row.model
        generation = self.newest(model, row.version, row.correlation)
        where = f"Model {model} - Error when running inference: "
        if generation is None:
            raise NotServed(
                f"{where}Failed for execute the inference request. Model '{model}' is not ready.",
                model,
            )
        if generation.is_decoupled and row.flags & wire.ONE_RESPONSE:
            raise Unsupported(
                f"{where}Model {model} is using the decoupled. The current BLS request call "
                "doesn't support models using the decoupled transaction policy. Please use "
                "'decoupled=True' argument to the 'exec' or 'async_exec' calls for decoupled "
                "models.'"
            )
        return generation

    def newest(
        self, model: str, version: int, correlation: wire.Correlation | None = None
    ) -> BrokerGeneration | None:
        """Return the newest generation of this version, or with -1 of the highest ready one.

        For a divided model -1 is the stable version, or, for a request, with a sequence's id or 0,
        perhaps the version on trial.
        """
        split = self._splits.get(model) if version == -1 else None
        divided = self._choose(split, correlation) if split is not None else None
        if divided is not None:
            return divided
        best = None
        for number, generation in self._by_name.get(model, {}).items():
            is_meant = version in (-1, number) and not generation.is_retired
            if is_meant and (best is None or generation.version > best.version):
                best = generation
        return best

    def _choose(
        self, split: wire.TrafficSplit, correlation: wire.Correlation | None
    ) -> BrokerGeneration | None:
        """Return the generation of a divided model; None if neither version takes requests.

        Calls of models and ensembles are divided and not copied, since the broker reads no tensors;
        a request that should have been copied is counted.
        """
        order = [split.stable, split.tried]
        if correlation is not None and goes_to_trial(split, correlation):
            order.reverse()
        served = self._by_name.get(split.model, {})
        candidates = (served[version] for version in order if version in served)
        chosen = next((generation for generation in candidates if not generation.is_retired), None)
        if correlation is not None and split.shadow and chosen is not None:
            trial = chosen.statistics.trial
            if trial is not None and chosen.version == split.stable and is_copied(split):
                trial.uncopied += 1
        return chosen

    def choose(self, model: str, version: int) -> list[BrokerGeneration]:
        """Return the generations of a model, or of all models without a name.

        -1 means all versions.
        """
        return [
            generation
            for name, versions in sorted(self._by_name.items())
            for number, generation in sorted(versions.items())
            if model in ("", name) and version in (-1, number)
        ]
