"""Findings about the memory of instances: the cost of each, equal pages, growth, kept objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from zmqtriton.sdk.models import Facts, Finding
from zmqtriton.sdk.models import figures as shown_figures
from zmqtriton_extras.inspection.explaining.sharing import Memory, read_memory

#: Minimum bytes that sharing must save to be advised: equal pages of instances beyond one copy.
_MUCH = 128 << 20
_LIMIT = "max_memory_bytes"


def read_costs(facts: Facts, figures: Mapping[str, Any]) -> Memory | None:
    """Return the memory of its instances; processes that load are not comparable yet.

    `figures` are the server's own figures of its processes.
    """
    pids = {stub["pid"]: stub["state"] for stub in facts.stubs if stub.get("pid")}
    is_settled = bool(pids) and all(state == "READY" for state in pids.values())
    memory = read_memory([*pids]) if is_settled else None
    on_gpus: Counter[str] = Counter()
    for pid in pids:
        on_gpus.update(figures.get(str(pid), {}).get("gpu_bytes", {}))
    return memory and memory._replace(
        on_gpus={gpu: size // len(pids) for gpu, size in sorted(on_gpus.items())}
    )


def find_costs(facts: Facts, memory: Memory | None) -> Iterator[Finding]:
    """Tell what instances cost, and what equal memory of them one load would hold once."""
    template, count = facts.template, len(facts.stubs)
    if memory is None:
        return
    own, common, share = map(shown_figures.format_bytes, memory[:3])
    cost = f"{own} of its own and {common} in common (PSS {share})"
    cost += "".join(
        f", {shown_figures.format_bytes(size)} on GPU {gpu}" for gpu, size in memory.on_gpus.items()
    )
    if template is not None:
        origin = f"the {template['instances']} of process {template['pid']}"
        whose = "that has" if template["instances"] == "threads" else "each has"
        instances = shown_figures.count_of(count, "instance")
        text = f"its {instances} {'is' if count == 1 else 'are'} of {origin}; "
        text += f"{whose} {cost}"
        advice = "They share one load until they write to it."
        yield Finding.note(text, advice, f"zmqtriton-ctl stacks {facts.word}")
        if template["instances"] == "forks" and memory.equal * (count - 1) >= _MUCH:
            equal, once = (
                shown_figures.format_bytes(memory.equal * count),
                shown_figures.format_bytes(memory.equal),
            )
            yield Finding.note(
                f"its {count} forks hold {equal} of equal pages, which each has made for itself",
                f"What `initialize` loads, the static method `preload` would hold once: {once}.",
                f"zmqtriton-ctl reload {facts.word}",
            )
    elif count > 1 and memory.equal * (count - 1) >= _MUCH:
        equal, once = (
            shown_figures.format_bytes(memory.equal * count),
            shown_figures.format_bytes(memory.equal),
        )
        text = f"its {count} instances hold {equal} of equal pages; each has {cost}"
        advice = (
            f"They would be held once, {once}, if INSTANCES is `forks` and the static method "
            "`preload` loads them, or `threads` and pb_utils.shared does."
        )
        yield Finding.note(text, advice, f"zmqtriton-ctl reload {facts.word}")
    else:
        whose = f"each of its {count} instances" if count > 1 else "its instance"
        yield Finding.note(f"{whose} has {cost}", "")


def find_kept(facts: Facts) -> Iterator[Finding]:
    """Tell the objects that the last load has kept, or why it has loaded everything again."""
    for row in facts.rows("kept"):
        if row["is_kept"]:
            yield Finding.note(f"its last load has kept {row['text']}", "")
        else:
            text = f"its last load has loaded everything again: {row['text']}"
            yield Finding.note(text, "")


def find_growth(facts: Facts) -> Iterator[Finding]:
    """Tell of instances whose memory grows with each execution, by the one that has most."""
    growing = [stub for stub in facts.stubs if stub.get("growth")]
    if not growing:
        return
    worst = max(growing, key=lambda stub: int(stub["growth"]["after"]))
    growth = worst["growth"]
    each = shown_figures.format_bytes((growth["after"] - growth["before"]) / growth["executions"])
    sizes = " to ".join(shown_figures.format_bytes(growth[key]) for key in ("before", "after"))
    others = f", {len(growing)} of {len(facts.stubs)} instances do" if len(growing) > 1 else ""
    text = f"it leaks memory: instance {worst['instance']} has grown by {each} with each execution"
    limit = next((row["limit"] for row in facts.rows("quotas") if row["quota"] == _LIMIT), 0)
    if limit:
        size = shown_figures.format_bytes(limit)
        advice = f"Find out what the model keeps. An instance is replaced at {size} ({_LIMIT})."
    else:
        advice = (
            f"Find out what the model keeps. Until then the parameter {_LIMIT} in config.pbtxt "
            "replaces an instance that has too much, before the kernel ends others."
        )
    executions = shown_figures.count_of(growth["executions"], "execution")
    yield Finding.warning(
        f"{text}, from {sizes} in {executions}{others}",
        advice,
        f"zmqtriton-ctl status {facts.word}",
        f"zmqtriton-ctl memory {facts.word} --between 10s",
        f"zmqtriton-ctl reload {facts.word} --force",
    )
