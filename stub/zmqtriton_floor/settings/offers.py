"""Offers of add-ons to hosts, by kinds; each process of a server has them in its settings.

A host is a room that asks for a kind, and knows no add-on. Names of kinds begin with the host's.
"""

from __future__ import annotations

from typing import Dict, Generic, List, Optional, Tuple, TypeVar

from zmqtriton_floor.lazy_names import load_reference
from zmqtriton_floor.process.named_tuples import NamedTuple

T = TypeVar("T")


class Offers(NamedTuple):
    #: Kind, name and reference of each thing, in the order of the add-ons. The name is "" where the
    #: things of a kind have none; a reference may be a word, where the kind is of words.
    rows: Tuple[Tuple[str, str, str], ...] = ()

    def pairs(self, kind: str) -> List[Tuple[str, str]]:
        """Return the name and the reference of each offer of a kind."""
        return [(name, reference) for each, name, reference in self.rows if each == kind]

    def references(self, kind: str) -> List[str]:
        return [reference for _, reference in self.pairs(kind)]

    def named(self, kind: str) -> Dict[str, str]:
        """Return the references of a kind by name; of two offers with one name the first counts."""
        return dict(reversed(self.pairs(kind)))

    def adding(self, kind: str, reference: str) -> Offers:
        return Offers((*self.rows, (kind, "", reference)))

    def without(self, kind: str) -> Offers:
        return Offers(tuple(row for row in self.rows if row[0] != kind))


class Hook(Generic[T]):
    """A kind of offers, which are imported when their host asks for them."""

    def __init__(self, name: str) -> None:
        self.name = name

    def all_of(self, offers: Offers) -> List[T]:
        return [load_reference(each) for each in offers.references(self.name)]

    def named_in(self, offers: Offers) -> Dict[str, str]:
        """Return the references of this kind's offers by their names."""
        return offers.named(self.name)

    def words_in(self, offers: Offers) -> List[str]:
        """Return the offers of this kind, which are words and no references."""
        return offers.references(self.name)

    def first_of(self, offers: Offers) -> Optional[T]:
        """Import and return the first offer of this kind; None if no add-on has one."""
        references = offers.references(self.name)
        return load_reference(references[0]) if references else None
