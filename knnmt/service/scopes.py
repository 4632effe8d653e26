"""The scope of a request: a model, some of its stores, filters and settings.

Filters of a key and of a request must both hold. Within one list several `=` on one name mean either of them, so the
two lists cannot simply be joined: a request for `client=B` would widen a key that is bound to `client=A`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from knnmt.store.filters import Condition


@dataclass(frozen=True, slots=True)
class Scope:
    """Requests with the same scope are decoded together."""

    engine: str
    stores: tuple[str, ...]  # empty: the model alone
    filters: tuple[str, ...] = ()
    settings: tuple[tuple[str, float], ...] = ()  # such as weight, where the request names it


def both(outer: Sequence[str], inner: Sequence[str]) -> tuple[str, ...] | None:
    """One list of conditions that says what two lists say together; None where nothing can meet both."""
    conditions = [[Condition.parse(text) for text in given] for given in (outer, inner)]
    joined: list[Condition] = [one for given in conditions for one in given if one.comparison != "="]
    names = dict.fromkeys(one.name for given in conditions for one in given if one.comparison == "=")
    for name in names:
        allowed = [{one.value for one in given if one.name == name and one.comparison == "="} for given in conditions]
        values = set.intersection(*(values for values in allowed if values))
        if not values:
            return None
        joined += [Condition(name, "=", value) for value in sorted(values)]
    return tuple(map(str, joined))


def meets(filters: Sequence[str], fields: dict[str, str]) -> bool:
    """Whether a pair with these fields (metadata, `corpus`, `created`) would be found under the filters."""
    conditions = [Condition.parse(text) for text in filters]
    for name in {one.name for one in conditions}:
        here = [one for one in conditions if one.name == name]
        equal = [one for one in here if one.comparison == "="]
        if equal and not any(one.holds(fields.get(name)) for one in equal):
            return False
        if not all(one.holds(fields.get(name)) for one in here if one.comparison != "="):
            return False
    return True


def completed(filters: Sequence[str], fields: dict[str, str]) -> dict[str, str]:
    """The fields, with the values that `=` filters require where the caller gave none."""
    wanted = [Condition.parse(text) for text in filters]
    missing = {one.name: one.value for one in reversed(wanted) if one.comparison == "=" and one.name not in fields}
    return {**fields, **missing}
