"""FastAPI's first page: an item as JSON, checked."""

from dataclasses import dataclass
from typing import NamedTuple

from zmqtriton import model


@dataclass
class Item:
    name: str
    price: float
    is_offer: bool = False


class Updated(NamedTuple):
    item_name: str
    item_id: int


@model
def update_item(item_id: int, item: Item) -> Updated:
    return Updated(item.name, item_id)
