"""Several models of one pair of languages: which one a request means."""

from collections.abc import Iterator

import pytest

from knnmt import Store
from knnmt.models.translation_model import TranslationModel
from knnmt.service.access import Access
from knnmt.service.failures import NotFound
from knnmt.service.languages import identifier
from knnmt.service.service import Service
from knnmt.service.shelf import Engine, Shelf, Shelved, stamp_of

ADMIN = Access(name="admin", role="admin")


@pytest.fixture(scope="module")
def service(embedded: TranslationModel, store: Store, other_store: Store) -> Iterator[Service]:
    """The same model twice, with a store each, as two models would have them."""
    engines = [Engine("first", embedded), Engine("second", embedded)]
    for engine, name, one in zip(engines, ("house", "other"), (store, other_store), strict=True):
        engine.stores[name] = Shelved(name, 1.0, one, stamp_of(one.path))
    made = Service(Shelf(engines))
    yield made
    made.stop()


@pytest.mark.parametrize(
    ("stores", "engine", "chosen"),
    [
        (None, "first", ("house",)),
        (["house"], "first", ("house",)),
        (["other"], "second", ("other",)),
        (["other", "house"], "first", ("house",)),
        ([], "first", ()),
    ],
)
def test_the_stores_of_a_request_choose_the_model(
    service: Service, stores: list[str] | None, engine: str, chosen: tuple[str, ...]
) -> None:
    pair = service.pair(ADMIN, "de", "en", stores=stores)
    assert pair.engine.name == engine
    assert service.scope(ADMIN, pair.engine, stores=stores).stores == chosen


def test_a_store_that_a_key_does_not_see_is_not_there(service: Service) -> None:
    reader = Access(name="reader", stores=("house",))
    pair = service.pair(reader, "de", "en", stores=["other"])
    with pytest.raises(NotFound, match="no memory 'other'"):
        service.scope(reader, pair.engine, stores=["other"])


def test_models_are_run_before_the_first_request(service: Service) -> None:
    service.warm_up()
    assert all(scheduler.texts == 0 for scheduler in service.schedulers.values())


def test_languages_are_told_apart_before_the_first_request(service: Service) -> None:
    identifier.cache_clear()
    service.warm_up()
    assert identifier.cache_info().currsize == 1
