"""The OpenAPI document says what the server does: whatever it allows is answered, and as it says."""

import os
from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks
from serving import listening
from tiny_models import tiny_model

from knnmt import Corpus, build_store
from knnmt.service.limits import Limits

REQUESTS = int(os.environ.get("KNNMT_REQUESTS", "4"))  # for each operation
PATIENCE = 3600  # seconds, for a machine that does much else: what is late is answered with a 500
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]


@pytest.fixture(scope="module")
def api_schema(tmp_path_factory: pytest.TempPathFactory) -> Iterator[schemathesis.BaseSchema]:
    folder, model = tmp_path_factory.mktemp("fuzzed"), tiny_model("marian")
    (folder / "memory.tsv").write_text("das ist ein haus\tthis is a house\nwir gehen\twe go\n", encoding="utf-8")
    build_store(folder / "house", model, [Corpus(folder / "memory.tsv")])
    limits = Limits(deadline=PATIENCE)
    with listening(model, [("house", folder / "house")], folder / "state", limits=limits) as running:
        yield schemathesis.openapi.from_url(f"{running.address}/spec")


@settings(
    max_examples=REQUESTS,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=REQUESTS < 100,
    database=None,
)
@given(data=st.data())
def asked(operation: schemathesis.schemas.APIOperation, data: st.DataObject) -> None:
    data.draw(operation.as_strategy()).call_and_validate(checks=CHECKS, timeout=PATIENCE)


def test_every_answer_is_documented(api_schema: schemathesis.BaseSchema) -> None:
    operations = [found.ok() for found in api_schema.get_all_operations()]
    assert len(operations) > 30
    failures = {}
    for operation in operations:
        try:
            asked(operation)
        except (Exception, schemathesis.core.failures.FailureGroup) as error:
            failures[operation.label] = error
    assert not failures, "\n\n".join(f"{label}: {error}" for label, error in failures.items())
