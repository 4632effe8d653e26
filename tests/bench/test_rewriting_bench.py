"""The benchmark of rewriting documents, at a tiny size."""

import pytest

from bench import rewriting


def test_every_kind_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriting, "KINDS", {name: rewriting.KINDS[name] for name in ("1.xlf", "a.txt")})
    rows = rewriting.rewriting(20)
    assert [row["kind"] for row in rows] == ["1.xlf", "a.txt"]
    assert all(row["microseconds"] > 0 for row in rows)


@pytest.mark.parametrize("name", rewriting.KINDS)
def test_documents_have_as_many_units_as_they_say(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    from knnmt.documents.kinds import open_document

    path = tmp_path_factory.mktemp("bench") / name
    path.write_text(rewriting.KINDS[name](7), encoding="utf-8")
    assert sum(1 for _ in open_document(path).units()) == 7
