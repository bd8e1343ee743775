"""One loading of one version: its instances, from the first start to the last end.

The model in the first stub may be asked for the configuration while the others import theirs. The
generation loads as a whole or fails as a whole; while it serves, instances come and go. Its owner,
the model, decides when it is announced and when it is retired. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from zmqtriton.config.instances import THREADS
from zmqtriton.environments.demand import SERVER_ENVIRONMENT
from zmqtriton.reading.blueprint import Blueprint, FinalConfig, InstanceSlot
from zmqtriton.supervisor import states
from zmqtriton.supervisor.actions import Assignment, EndTemplate, RemoveDirectory, Send, Template
from zmqtriton.supervisor.models.instance import InstanceSet, StubPlace, describe_giving_up, shorten
from zmqtriton.supervisor.models.instance_changes import NeedsNewGeneration, Roll, change_groups
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.server_processes.introductions import Introductions
from zmqtriton.supervisor.states import UNLOADED, GenerationState, InstanceState
from zmqtriton.supervisor.story import Promise
from zmqtriton_floor import wire
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.reasons import Reason

#: Maximum seconds that it waits for ending instances, whose descriptors it needs.
_ROOM_WITHIN_S = 30.0
#: Why threads cannot adopt in a new generation.
_MORE_CHANGED = "adopt() is for a change of code alone, of the version that serves"
#: The states of instances that answer requests, or will.
_ANSWERING = frozenset(InstanceState) - {
    InstanceState.STOPPING,
    InstanceState.STOPPED,
    InstanceState.FAILED,
}


class GenerationOwner(Protocol):
    """Receives the events of a serving generation."""

    def generation_changed(self, generation: Generation) -> None:
        """Handle the death or the return of an instance."""

    def generation_given_up(self, generation: Generation) -> None:
        """Handle the loss of all instances, or another failed try."""

    def generation_revived(self, generation: Generation) -> None:
        """Handle an instance that is ready after all had been given up; the broker knows."""

    def generation_ended(self, generation: Generation) -> None:
        """Handle the end of the generation's last process."""


class GenerationReadiness(Protocol):
    """The readiness of a generation; an ensemble's is that of its members."""

    @property
    def ready_count(self) -> int: ...

    @property
    def why_not_ready(self) -> Reason | None:
        """Return why no instance is ready; None if one is ready."""

    @property
    def have_all_failed(self) -> bool:
        """True if every instance is given up, and none is being tried."""

    def with_is_ready(self) -> list[StubPlace]:
        """Return the ready instances whose models must also be asked."""


class Generation:
    def __init__(
        self,
        plan: Plan,
        introductions: Introductions,
        blueprint: Blueprint,
        version: int,
    ) -> None:
        #: The model, once the generation serves; before that its load awaits it.
        self.owner: GenerationOwner | None = None
        #: Promise that is kept once all instances are ready for the first time.
        self.loaded = Promise[None]()
        self.number = plan.new_generation_number()
        self.blueprint = blueprint
        self.version = version
        self.state = GenerationState.LOADING
        #: False once all frontends have ended.
        self.has_clients = True
        self.final_config: FinalConfig | None = blueprint.final_config
        #: The environment of its instances; set when it has been prepared.
        self.environment = SERVER_ENVIRONMENT
        self.instances = InstanceSet()
        self.readiness: GenerationReadiness = self.instances
        self._plan = plan
        self._introductions = introductions
        #: The models that it needs to execute.
        self.callees = {
            *blueprint.callees,
            *(blueprint.ensemble.member_names if blueprint.ensemble else ()),
        }
        self._bytecode_directory = introductions.bytecode_directory(self.number)
        self.finalize_turns = introductions.finalize_turns
        self._broker_entry = BrokerEntry(introductions, self.number, blueprint.name, version)
        #: Instances that wait for the configuration, which the first one is asked for.
        self._awaiting_config: list[StubPlace] = []
        #: The model's answer about its configuration.
        self._completion = ""
        #: The owner of a change of its instances, and the roll if it is one.
        self._scope = plan.scope()
        self._roll: Roll | None = None
        #: The origin of its instances; None before the first, and if they load by themselves.
        self.template: Template | None = None
        #: The template of the code before a roll.
        self._earlier: Template | None = None
        #: Serving generation of earlier code, whose template may be the origin of its own.
        self.predecessor: Generation | None = None
        #: True while a roll that has failed in the earlier process is tried in a new one.
        self._has_adopt_failed = False
        #: The last report of its templates on kept objects; None if there was no earlier code.
        self.kept: wire.Kept | None = None
        self._began_s, self.load_s = plan.now_s, 0.0  # the time from its start until it could serve

    @property
    def is_loading(self) -> bool:
        return self.state is GenerationState.LOADING

    @property
    def is_serving(self) -> bool:
        return self.state is GenerationState.SERVING

    @property
    def label(self) -> str:
        return f"model '{self.blueprint.name}' version {self.version}"

    @property
    def templates(self) -> list[Template]:
        """Return its template, and that with the code before a roll that is under way."""
        return [one for one in (self.template, self._earlier) if one is not None]

    def _transition(self, event: states.Event) -> None:
        """Change the state; no other code writes it."""
        self.state = states.next_state(
            states.GENERATION_TRANSITIONS, self.state, event, f"{self.label} ({self.number})"
        )
        if self.state is GenerationState.ENDED:
            for instance in self.instances:
                self._introductions.stubs.pop(instance.serial, None)
            self._introductions.ended_generations.append(self.number)

    @property
    def planned_slots(self) -> Sequence[InstanceSlot]:
        """Places of its instances by its final configuration; without one yet, by its files."""
        blueprint, final = self.blueprint, self.final_config
        return final.slots if final else (blueprint.first_slot, *blueprint.other_slots)

    # ---------------------------------------------------------- what is asked

    async def start(self) -> None:
        """Start its instances, if need be when those of others have ended."""
        slots, limit = self.planned_slots, self._introductions.resources.instance_limit
        if self.predecessor is not None:
            self._record_no_adopt(
                self.blueprint, _MORE_CHANGED if self.blueprint.instances == THREADS else ""
            )
        if limit.is_room_coming(len(slots)):
            late = self._plan.pause(_ROOM_WITHIN_S)
            await self._plan.until(lambda: late.is_over or not limit.is_room_coming(len(slots)))
        if self.is_loading and self._claim(slots):
            self.add_instances(slots)

    def announce(self) -> None:
        """Announce the generation and its ready instances to the broker; again if it comes back."""
        self.load_s = self.load_s or self._plan.now_s - self._began_s
        self.predecessor = None
        assert self.final_config is not None
        self._broker_entry.announce(self.final_config.config, self.instances.ready)

    def retire(self) -> None:
        """End the generation once its requests are answered."""
        if self.is_loading:
            self.abort(UNLOADED)
        if not self.is_serving:
            return
        self._transition(states.RetireRequested())
        self._introductions.resources.instance_limit.leave(self.number)
        self._scope.cancel()
        # without a ready instance, those that come up answer the requests that wait
        has_ready = bool(self.instances.ready)
        if has_ready:
            self._end_template()
        for instance in self.instances:
            if instance.state is InstanceState.READY:
                instance.handle(states.DrainRequested())
            elif has_ready and instance.state is not InstanceState.DRAINING:
                instance.handle(states.StopRequested())
        self._broker_entry.retire()
        self._keep_answering()

    def on_drained(self) -> None:
        """Handle the broker's report that it has answered the last request."""
        if self.state is not GenerationState.DRAINING:
            return
        self._transition(states.NothingOutstanding())
        self._end_template()
        for instance in self.instances:
            if instance.state in (InstanceState.READY, InstanceState.DRAINING):
                instance.handle(states.DrainFinished())
            elif instance.state is not InstanceState.STOPPING:
                instance.handle(states.StopRequested())
        self._end_without_processes()

    # ------------------------------------------------------ other instances

    def change_instance_groups(self, blueprint: Blueprint) -> Promise[None]:
        """Change the instances. Raises ZmqTritonError if this is impossible."""
        finished = blueprint.final_config or blueprint.finalize_config(self._completion)
        claim = partial(self._introductions.resources.claim, self.number)
        return self._scope.tell(change_groups(self._plan, self, blueprint, finished, claim))

    def roll(self, blueprint: Blueprint) -> Promise[None]:
        """Replace the instances one by one. Raises NeedsNewGeneration."""
        return self._scope.tell(self._tell_roll(blueprint))

    async def _tell_roll(self, blueprint: Blueprint) -> None:
        # the template with the old code is there for that with the new one, and if this fails
        self._end(self._earlier)  # of a roll that was given up
        earlier = self._earlier = self.template
        self.template, kept = None, self.kept
        try:
            await self._roll_to(blueprint, earlier)
        except ZmqTritonError:
            if self._earlier is earlier:
                self._end(self.template)
                self.template, self._earlier, self.kept = earlier, None, kept
            raise
        finally:
            if self._earlier is earlier:
                self._earlier = self._end(earlier)

    async def _roll_to(self, blueprint: Blueprint, earlier: Template | None) -> None:
        """Roll; if instances that adopt cannot start, roll to a new process."""
        self._roll = Roll(self._plan, self, blueprint)
        before = self.kept
        self._record_no_adopt(blueprint)
        try:
            await self._roll.tell()
        except NeedsNewGeneration:
            raise
        except ZmqTritonError as error:
            has_adopted = self.kept is not before and self.kept and self.kept.is_kept
            if not (has_adopted and earlier is not None and earlier.has_threads):
                raise
            self.template, self._has_adopt_failed = self._end(self.template), True
            self.record_kept(
                wire.Kept(0, f"an instance with adopt() could not start: {error.text}")
            )
            self._roll = Roll(self._plan, self, blueprint)
            await self._roll.tell()
        finally:
            self._has_adopt_failed = False

    def remove_instance(self, instance: StubPlace) -> None:
        """End an instance once it has answered its requests."""
        instance.is_being_removed = True
        if instance.state is InstanceState.READY:
            instance.handle(states.DrainRequested())
            if instance.slot.is_passive:
                instance.handle(states.DrainFinished())
            else:
                self._broker_entry.retire(instance)
        else:
            instance.handle(states.StopRequested())
        self.instances.discard_removed()

    def replace_blueprint(self, blueprint: Blueprint, finished: FinalConfig) -> None:
        """Use another blueprint for instances that start from now on."""
        self.blueprint, self.final_config = blueprint, finished
        if self._broker_entry.is_announced:
            self._broker_entry.announce(finished.config)

    # --------------------------------------------------------------- the end

    def abort(self, reason: Reason | None) -> None:
        """End the generation now: its requests fail with the reason."""
        if self.state is GenerationState.ENDED:
            return
        self._transition(states.AbortRequested())
        self._introductions.resources.instance_limit.leave(self.number)
        self._broker_entry.remove(reason)
        self._end_template(at_once=True)
        for instance in self.instances:
            if instance.state is not InstanceState.STOPPED:
                instance.handle(states.StopRequested())
        self._end_without_processes()

    # --------------------------------------------------------- what happens

    def kill(self, instance: StubPlace, reason: Reason) -> None:
        """Kill the process of one of the instances."""
        self.handle(instance, states.KillRequested(reason))

    def handle(self, instance: StubPlace, event: states.Event) -> None:
        """Handle an event of one of the instances."""
        before, serial = instance.state, instance.serial
        instance.handle(event)
        if instance.serial != serial:
            self._introductions.stubs.pop(serial, None)
            self._introductions.stubs[instance.serial] = self.number
        if isinstance(event, states.ProcessStarted):
            self._introduce(instance)
        elif isinstance(event, states.ProcessExited):
            host = self.environment.host
            self._introductions.report_death(
                serial, instance.death_summary, host.guest if host else 0
            )
            log_death(self._plan, self.label, instance, event, before)
            if instance.is_being_removed:
                self._introductions.stubs.pop(serial, None)
        elif (
            isinstance(event, states.InstanceConfigCompleted)
            and instance.state is InstanceState.LOADING
        ):
            self._on_config_completed(instance, event.document)
        if instance.state is not before:
            self._on_instance_changed(instance, before)

    def _on_instance_changed(self, instance: StubPlace, before: InstanceState) -> None:
        """Act on the change of an instance."""
        if self.state is GenerationState.LOADING:
            if instance.state is InstanceState.FAILED:
                self._fail(instance.load_failure())
            elif instance.state is InstanceState.READY and self.instances.unstarted:
                self._begin_next()
            elif all(i.state is InstanceState.READY for i in self.instances):
                self._transition(states.AllInstancesLoaded())
                self.loaded()
        elif self.is_serving:
            self._on_instance_changed_while_serving(instance, before)
        elif self.state is GenerationState.DRAINING:
            if instance.state is InstanceState.READY and not instance.slot.is_passive:
                self._broker_entry.attach(instance)
            self._keep_answering()
        self._end_without_processes()

    def _on_instance_changed_while_serving(
        self, instance: StubPlace, before: InstanceState
    ) -> None:
        if instance.state is InstanceState.READY:
            if not self._broker_entry.is_announced and self.instances.ready:
                self.announce()  # all had been given up
                if self.owner is not None:
                    self.owner.generation_revived(self)
            elif not instance.slot.is_passive:
                self._broker_entry.attach(instance)
            self._begin_next()
        self.instances.discard_removed()
        if self.readiness.have_all_failed:
            self._broker_entry.remove(self.readiness.why_not_ready)
            for one in self.instances:
                if one.state is InstanceState.DRAINING:  # the broker has refused what it executed
                    one.handle(states.DrainFinished())
            if self.owner is not None:
                self.owner.generation_given_up(self)
        elif self.owner is not None and InstanceState.READY in (instance.state, before):
            self.owner.generation_changed(self)

    def _keep_answering(self) -> None:
        """Start an instance if none is left for the waiting requests; abort if none can start."""
        # Passive instances wait for the others, unless there are none.
        waiting = self.instances.active or self.instances
        # instances of a guest, and of a generation that was given up, do not come back
        can_start = (
            self.has_clients and self._broker_entry.is_announced and not self.environment.host
        )
        answering = _ANSWERING if can_start else {InstanceState.DRAINING}
        if not any(i.state in answering for i in waiting):
            stopped = [
                i for i in waiting if i.state is InstanceState.STOPPED and not i.is_being_removed
            ]
            if can_start and stopped:
                self.handle(stopped[0], states.StartRequested())
            else:
                self.abort(self.readiness.why_not_ready or UNLOADED)

    def _end_without_processes(self) -> None:
        if self.state is GenerationState.STOPPING and not any(i.is_alive for i in self.instances):
            self._broker_entry.remove(UNLOADED)
            self._introductions.resources.release(self.number)
            self._plan.enqueue(RemoveDirectory(self._bytecode_directory))
            self._transition(states.LastProcessExited())
            if self.owner is not None:
                self.owner.generation_ended(self)

    # ------------------------------------------------------------- instances

    def add_instances(self, places: Sequence[InstanceSlot]) -> list[StubPlace]:
        """Create an instance for each slot, and start them."""
        new = [StubPlace(self._plan, place, self) for place in places]
        self.instances += new
        self._begin_next()
        return new

    def _begin_next(self) -> None:
        for instance in self.instances.unstarted:
            if self.blueprint.can_load_in_parallel or not self.instances.is_one_loading:
                self.handle(instance, states.StartRequested())

    def choose_template(self, assignment: Assignment) -> Template | None:
        """Return the origin of the next instance; None if that loads by itself."""
        blueprint = self.blueprint
        if self.template is None and blueprint.instances and not self.environment.host:
            place = blueprint.first_slot._replace(name="template")
            self.template = Template(
                self._plan.new_serial(),
                self._load_of(place, is_asked=False),
                blueprint.max_load_s,
                blueprint.instances == THREADS,
                self.choose_spare(place, assignment._replace(cores=())),
                self._find_origin(),
            )
        return self.template

    def choose_spare(self, slot: InstanceSlot, assignment: Assignment) -> int:
        """Return the serial of the spare process that forks the next instance; 0 without one."""
        return self._introductions.choose_spare(self.environment, self.blueprint, slot, assignment)

    def place(self, instance: StubPlace) -> Assignment:
        """Return the cores and the variables of an instance that starts."""
        return self._introductions.resources.place(self, instance)

    def _find_origin(self) -> int:
        """Return the serial of the template with the earlier code; 0 without one.

        Threads adopt only in a roll: otherwise all new instances are there before an old one ends.
        """
        earlier = self._earlier
        if self.blueprint.instances == THREADS:
            return earlier.serial if earlier is not None and not self._has_adopt_failed else 0
        if earlier is None and self.predecessor is not None:
            earlier = self.predecessor.template
            if self.predecessor.environment != self.environment:
                self.record_kept(wire.Kept(0, "the model's environment changed"))
                return 0
        return earlier.serial if earlier is not None and not earlier.has_threads else 0

    def _record_no_adopt(self, blueprint: Blueprint, otherwise: str = "") -> None:
        """Record why changed code cannot adopt, if it could be expected to."""
        if why := blueprint.why_no_adopt or otherwise:
            self.record_kept(wire.Kept(0, why))

    def record_kept(self, report: wire.Kept) -> None:
        """Record the template's report on the objects that it has kept, and log it."""
        self.kept = report
        text = f"{self.label} {'kept' if report.is_kept else 'is loaded again:'} {report.text}"
        self._plan.log("I", text, model=self.blueprint.name, version=self.version)

    def _end_template(self, *, at_once: bool = False) -> None:
        self._earlier = self._end(self._earlier)
        self.template = self._end(self.template, at_once=at_once)

    def _end(self, template: Template | None, *, at_once: bool = False) -> Template | None:
        """End a template, if there is one; return None, its successor."""
        if template is not None:
            self._plan.enqueue(EndTemplate(template.serial, at_once))
        return None

    def _load_of(self, place: InstanceSlot, *, is_asked: bool) -> wire.LoadModel:
        blueprint, served = self.blueprint, self.final_config
        return wire.LoadModel(
            place.name,
            blueprint.name,
            self.version,
            place.kind,
            place.device,
            blueprint.directory,
            blueprint.versions[self.version].path,
            blueprint.config if is_asked or not served else served.config,
            wire.CONFIG_IS_FINAL if served and not is_asked else int(is_asked),
            blueprint.backend_settings,
            self._bytecode_directory,
            blueprint.backend.package if blueprint.backend else "",
        )

    def _introduce(self, instance: StubPlace) -> None:
        place = instance.slot
        load = self._load_of(place, is_asked=self._is_to_complete_config(instance))
        # the broker kills this group if the supervisor dies; a guest is not ours
        group = 0 if self.environment.host else instance.pid
        self._introductions.introduce(instance.serial, "stub", place.name, group).at_end(
            lambda: self._plan.enqueue(Send(instance.serial, load))
        )

    def _is_to_complete_config(self, instance: StubPlace) -> bool:
        """True if the model in this instance is asked for the configuration."""
        if self.final_config is None:
            return instance is self.instances[0]
        return self._roll is not None and self._roll.is_to_complete_config(instance)

    def _on_config_completed(self, instance: StubPlace, document: str) -> None:
        """Let an instance that has imported the model initialize it, if its configuration is final.

        `document` is the model's answer about the configuration.
        """
        if self.final_config is None and instance is self.instances[0]:
            self._finish_config(document)
        elif self.final_config is None:
            self._awaiting_config.append(instance)
        elif not self._is_to_complete_config(instance):
            self._initialize(instance, self.final_config)
        elif self._roll is not None and self._roll.complete_config(document):
            self._completion = document
            self._initialize(instance, self.final_config)

    def _finish_config(self, document: str) -> None:
        """Use the first instance's answer, for all instances; the generation fails if it cannot."""
        self._completion = document
        try:
            self.final_config = final = self.blueprint.finalize_config(document)
        except ZmqTritonError as error:
            self._fail(error)
            return
        self._plan.log("V", "model configuration:\n", document=final.config)
        if self._claim(final.slots):
            for each in (self.instances[0], *self._awaiting_config):
                self._initialize(each, final)
            self.add_instances(final.slots[len(self.instances) :])

    def _initialize(self, instance: StubPlace, final: FinalConfig) -> None:
        if instance.state is InstanceState.LOADING:
            self._plan.enqueue(Send(instance.serial, wire.Initialize(final.config)))

    def _claim(self, slots: Sequence[InstanceSlot]) -> bool:
        """True if all its instances could ever execute, with what others need; else it fails."""
        claims = self._introductions.resources
        try:
            if self.final_config is not None:
                claims.claim(self.number, slots)
            else:  # what else they need is known when the first has completed the configuration
                claims.instance_limit.claim(self.number, len(slots))
        except ZmqTritonError as error:
            self._fail(error)
            return False
        return True

    def _fail(self, error: ZmqTritonError) -> None:
        self.loaded.fail(error)
        self.abort(error.reason)


def log_death(
    plan: Plan,
    label: str,
    instance: StubPlace,
    event: states.ProcessExited,
    before: InstanceState,
) -> None:
    """Log a death, unless the server has ended the process.

    `label` names the version, `before` is the state in which the stub died.
    """
    death = instance.death_reason
    about: dict[str, Any] = {
        "model": instance.model,
        "version": instance.version,
        "instance": instance.name,
    }
    what = f"stub '{instance.name}' of {label} has died: {shorten(death.text if death else '')}"
    if instance.state is InstanceState.FAILED and instance.can_restart:
        plan.log("E", f"{what}; {describe_giving_up(instance)}", **about)
    elif instance.state is InstanceState.BACKOFF:
        plan.log("W", f"{what}; it is started again", **about)
    elif before is InstanceState.DRAINING or (
        before is InstanceState.STOPPING and death != event.reason
    ):
        plan.log("W", what, **about)


class BrokerEntry:
    """Announces a generation and its instances to the broker, and retires them."""

    def __init__(self, introductions: Introductions, number: int, model: str, version: int) -> None:
        self._introductions = introductions
        self._number = number
        self._model = model
        self._version = version
        self.is_announced = False

    def announce(self, config: str, instances: Iterable[StubPlace] = ()) -> None:
        """Announce the generation with these instances, or its new configuration."""
        self.is_announced = True
        self._introductions.send_to_broker(
            wire.AddGeneration(self._number, self._model, self._version, config)
        )
        for instance in instances:
            self.attach(instance)

    def attach(self, instance: StubPlace) -> None:
        """Let the instance get requests."""
        needs = self._introductions.resources.needs_for_broker(instance.slot.resources)
        self._introductions.send_to_broker(
            wire.AttachInstance(self._number, instance.serial, instance.name, needs)
        )

    def retire(self, instance: StubPlace | None = None) -> None:
        """Let the instance, or all of them, get no further requests."""
        if self.is_announced:
            numbers = (self._number,) if instance is None else (self._number, instance.serial)
            self._introductions.send_to_broker(wire.Retire(*numbers))

    def remove(self, reason: Reason | None) -> None:
        if self.is_announced:
            self.is_announced = False
            self._introductions.send_to_broker(
                wire.RemoveGeneration(self._number, shorten(reason.text if reason else ""))
            )
