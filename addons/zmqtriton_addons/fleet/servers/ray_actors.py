"""Servers on a Ray cluster, as the actors that own them know them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from zmqtriton_floor.errors import InvalidArgument

#: The one that the actors' names are in.
NAMESPACE = "zmqtriton"
_ANSWER_WITHIN_S = 10.0


def find_announcements(address: str) -> list[tuple[Mapping[str, Any], float]]:
    """Return what the servers have announced last, and how long ago that was.

    The cluster is the one at the address, by default $RAY_ADDRESS or this machine's. Raises
    InvalidArgument.
    """
    try:
        import ray
    except ImportError:
        raise InvalidArgument("Ray is not installed here: pip install ray") from None
    try:
        ray.init(
            address=address or "auto",
            namespace=NAMESPACE,
            logging_level="error",
            log_to_driver=False,
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise InvalidArgument(f"there is no Ray cluster: {error}") from None
    try:
        return _ask(ray)
    finally:
        ray.shutdown()


def _ask(ray: Any) -> list[tuple[Mapping[str, Any], float]]:
    actors = []
    for name in sorted(ray.util.list_named_actors()):
        with suppress(ValueError):  # its fleet has ended since
            actors.append(ray.get_actor(name))
    answers = [actor.look.remote() for actor in actors]
    if answers:
        answers, _ = ray.wait(answers, num_returns=len(answers), timeout=_ANSWER_WITHIN_S)
    announcements = []
    for answer in answers:
        try:
            report = ray.get(answer)
        except ray.exceptions.RayError:
            continue  # it is being started again, and its server with it
        if report.announcement is not None:
            announcements.append((report.announcement, report.age_s))
    return announcements
