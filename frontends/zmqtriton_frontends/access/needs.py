"""The scope that a request needs, by the category of its route or RPC."""

from __future__ import annotations

from zmqtriton_floor.access.token_file import CONTROL, INFER

#: No token: balancers ask whether the server lives and is ready, and the pages show nothing of it.
OPEN = ""
#: A token, of whatever scope.
ANY = "any"

_BY_CATEGORY = {
    "": OPEN,
    "health": OPEN,
    "metadata": ANY,
    "model-config": ANY,
    "statistics": ANY,
    "inference": INFER,
    "shared-memory": INFER,
}


def need_of(category: str, *, names_model: bool = False, is_index: bool = False) -> str:
    """Return OPEN, ANY or a scope; an unknown call needs `control`.

    The index of the repository only reads, and what is said of a model is said to those alone who
    may see it.
    """
    if is_index or (category == "health" and names_model):
        return ANY
    return _BY_CATEGORY.get(category, CONTROL)
