"""FastAPI's first page: an item as JSON, checked; and a 404 of its page on errors."""

from pydantic import BaseModel

from zmqtriton import Refused, model


class Item(BaseModel):
    name: str
    price: float
    is_offer: bool | None = None


@model
def update_item(item_id: int, item: Item) -> dict:
    if item_id < 0:
        raise Refused("Item not found", status=404)
    return {"item_name": item.name, "item_id": item_id}
