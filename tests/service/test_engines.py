"""Several models of one pair of languages: which one a request means."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from knnmt import Store
from knnmt.models.translation_model import TranslationModel
from knnmt.service.access import Access
from knnmt.service.failures import NotFound
from knnmt.service.languages import distance, identifier
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


@pytest.mark.parametrize(
    ("wanted", "code", "far"),
    [
        ("de", "de", 0), ("DE", "deu_Latn", 1), ("deu", "de", 0), ("de_DE", "de", 1), ("de-AT", "de_DE", 2),
        ("zh-Hans", "zh", 0), ("zh-TW", "zho_Hant", 0), ("zh", "zho_Hans", 0), ("zh", "zho_Hant", 1),
        ("zh-CN", "zh_CN", 0), ("pt-BR", "pt", 1), ("pt_BR", "pt-PT", 2), ("pt", "de", None), ("und", "und", 0),
    ],
)  # fmt: skip
def test_codes_of_clients_fall_back_to_what_a_model_has(wanted: str, code: str, far: int | None) -> None:
    assert distance(wanted, code) == far


def test_the_nearest_of_several_regions_is_taken(service: Service, embedded: TranslationModel) -> None:
    models = {code: replace(embedded, target_lang=code) for code in ("zho_Hans", "zho_Hant", "pt_PT")}
    shelf = Shelf([Engine(code, model) for code, model in models.items()])
    made = Service(shelf)
    chosen = {code: made.pair(ADMIN, "de-CH", code).engine.name for code in ("zh", "zh-TW", "zh_Hant", "pt-BR", "PT")}
    made.stop()
    assert chosen == {"zh": "zho_Hans", "zh-TW": "zho_Hant", "zh_Hant": "zho_Hant", "pt-BR": "pt_PT", "PT": "pt_PT"}


def test_a_model_without_languages_can_be_asked(embedded: TranslationModel) -> None:
    made = Service(Shelf([Engine("plain", replace(embedded, source_lang=None, target_lang=None))]))
    assert made.pair(ADMIN, "auto", "und", "Das ist ein Haus.").engine.name == "plain"
    made.stop()


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
