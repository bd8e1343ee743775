"""Hosts: a `Hook` names a kind, and has the things of it that add-ons offer.

A process of the server has all offers in `gateway.settings.offers`; commands ask `offers()`.
"""

from zmqtriton.addons import offers
from zmqtriton_floor.settings.offers import Hook, Offers

__all__ = ["Hook", "Offers", "offers"]
