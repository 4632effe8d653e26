"""A cache of the last things that were opened or read."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

Made = TypeVar("Made")

NOTHING = object()


class LastUsed:
    """Holds so many things by name; the ones that came first go first."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.things: OrderedDict[Hashable, Any] = OrderedDict()

    def get(self, name: Hashable, make: Callable[[], Made]) -> Made:
        found: Any = self.things.get(name, NOTHING)
        if found is NOTHING:
            found = make()
            self.things[name] = found
            while len(self.things) > self.most:
                self.things.popitem(last=False)
        made: Made = found
        return made
