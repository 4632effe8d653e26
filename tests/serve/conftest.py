"""One server for the tests that change nothing."""

from collections.abc import Iterator

import pytest
from serving import serving
from starlette.testclient import TestClient

from knnmt import Store
from knnmt.models.translation_model import TranslationModel


@pytest.fixture(scope="session")
def client(embedded: TranslationModel, store: Store, other_store: Store) -> Iterator[TestClient]:
    """With two stores that stay as they are."""
    with serving(embedded, [("house", store.path), ("other", other_store.path)]) as made:
        yield made
