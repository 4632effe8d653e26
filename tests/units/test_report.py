"""A report: totals, and what is doubtful with the worst first."""

import json
from pathlib import Path

import pytest
from contents import marked

from knnmt import SettingsError
from knnmt.documents.content import DocumentUnit
from knnmt.units.report import Report, check_report


def record(flags: list[str], log_probability: float = -1.0, origin: str = "machine") -> dict[str, object]:
    return {
        "flags": flags,
        "confidence": None if origin == "exact" else 0.9,
        "origin": origin,
        "log_probability": log_probability,
        "tokens": 4,
        "memory_share": 0.5,
        "match": 80.0,
    }


def made() -> Report:
    report = Report()
    report.begin_file(Path("a.xlf"), Path("b.xlf"))
    unit = DocumentUnit(1, marked("a <b>&</b>"), "a.xlf: unit 1")
    report.add(unit, record([]), ("fine",))
    report.add(unit, record(["tag guessed"]), marked("<b>guessed</b>"))
    report.add(unit, record(["number differs", "repeated phrase"]), ("worst",))
    report.add(unit, record(["tag guessed"], -8.0), ("unlikely",))
    report.add(unit, record([], origin="exact"), ("known",))
    return report


def test_totals_and_the_worst_first(tmp_path: Path) -> None:
    made().write(tmp_path / "r.json")
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["totals"] == {
        "units": 5, "exact_matches": 1, "machine": 4, "near_matches": 4, "doubtful": 3,
        "flags": {"tag guessed": 2, "number differs": 1, "repeated phrase": 1},
        "mean_probability": 0.5488, "memory_share": 0.5,
    }  # fmt: skip
    assert [unit["translation"] for unit in found["doubtful"]] == ["worst", "unlikely", "<b>guessed</b>"]
    assert found["files"] == [{"source": "a.xlf", "target": "b.xlf", "units": 5}]


def test_the_page_holds_the_same(tmp_path: Path) -> None:
    made().write(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert page.index("worst</p>") < page.index("unlikely</p>") < page.index("&lt;b&gt;guessed&lt;/b&gt;")
    assert "a &lt;b&gt;&amp;&lt;/b&gt;" in page
    assert "<script" not in page


def test_where_a_report_may_go(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"must end in \.html or \.json"):
        check_report(tmp_path / "r.txt")
    with pytest.raises(SettingsError, match="there is no folder"):
        check_report(tmp_path / "no/r.json")
