"""Documents over HTTP: jobs that end, survive a restart, and are seen by their owner alone."""

import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from serving import copied, serving
from starlette.testclient import TestClient

from knnmt import Store
from knnmt.documents.content import DocumentUnit, UnitResult
from knnmt.models.translation_model import TranslationModel
from knnmt.serve.settings import ServerSettings
from knnmt.service.access import Access
from knnmt.service.failures import BadRequest
from knnmt.service.jobs import DONE, RECORD, Jobs, whole_results
from knnmt.service.scopes import Scope

XLIFF = """<?xml version="1.0" encoding="UTF-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
  <file original="a" source-language="de" target-language="en" datatype="plaintext"><body>
    <trans-unit id="1"><source>Prüfen Sie die <g id="1">Kette</g>.</source></trans-unit>
  </body></file>
</xliff>
"""


def sent(client: TestClient, name: str, content: bytes, **more: str) -> Any:
    data = {"source": "de", "target": "en", **more}
    return client.post("/v1/documents", files={"file": (name, content)}, data=data)


def ended(client: TestClient, identity: str) -> dict[str, Any]:
    while True:
        state: dict[str, Any] = client.get(f"/v1/documents/{identity}").json()
        if state["state"] in ("done", "failed"):
            return state
        time.sleep(0.02)


def test_a_file_in_a_translated_file_out(client: TestClient) -> None:
    job = sent(client, "manual.xlf", XLIFF.encode()).json()
    state = ended(client, job["id"])
    assert (state["state"], state["units"], state["done"]) == ("done", 1, 1)
    result = client.get(f"/v1/documents/{job['id']}/result")
    assert result.headers["content-disposition"] == 'attachment; filename="manual.en.xlf"'
    assert result.text.count('<g id="1">') == 2
    assert "<target" in result.text
    report = client.get(f"/v1/documents/{job['id']}/report").json()
    assert report["document"]["id"] == job["id"]
    assert client.get("/v1/documents").json()[0]["id"] == job["id"]
    assert client.delete(f"/v1/documents/{job['id']}").json() == {"removed": True}
    assert client.get(f"/v1/documents/{job['id']}").status_code == 404


@pytest.mark.parametrize(("stores", "exact"), [("house", 1), ("", 0)])
def test_a_form_can_name_no_memory(client: TestClient, stores: str, exact: int) -> None:
    known = client.get("/v1/memories/house/segments").json()["segments"][0]["source"]
    state = ended(client, sent(client, "text.txt", known.encode(), stores=stores).json()["id"])
    assert (state["state"], state["exact"]) == ("done", exact)


def test_the_report_has_what_the_model_was_not_sure_of(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("knnmt.units.report.UNSURE", 1.1)
    state = ended(client, sent(client, "text.txt", b"Das ist ein Elefant.").json()["id"])
    report = client.get(f"/v1/documents/{state['id']}/report").json()
    assert state["flagged"] == 1
    assert report["doubtful"][0]["flags"] == ["low probability"]


def test_libretranslate_s_way(client: TestClient) -> None:
    files = {"file": ("text.txt", b"Das ist ein Haus.\n\nHallo.\n")}
    answer = client.post("/translate_file", files=files, data={"source": "auto", "target": "en"}).json()
    assert answer["translatedFileUrl"].startswith("http://127.0.0.1:5000/download_file/")
    assert client.get(answer["translatedFileUrl"]).text.count("\n") == 3


@pytest.mark.parametrize(
    ("name", "content", "more", "message"),
    [
        ("text.docx", b"x", {}, "not known"),
        ("text", b"x", {}, "ending"),
        ("text.xlf", b"<xliff", {}, "text.xlf"),
        ("text.txt", b"x", {"target": "fr"}, "fr is not supported"),
        ("text.txt", b"x", {"weight": "7"}, "weight"),
    ],
)
def test_what_cannot_be_translated_is_refused(
    client: TestClient, name: str, content: bytes, more: dict[str, str], message: str
) -> None:
    answer = sent(client, name, content, **more)
    assert answer.status_code == 400
    assert message in answer.json()["error"]
    assert "/documents/" not in answer.json()["error"]


def test_a_memory_that_is_not_there(client: TestClient) -> None:
    assert sent(client, "text.txt", b"x", stores="nowhere").status_code == 404


def test_a_job_goes_on_after_a_restart(embedded: TranslationModel, store: Store, tmp_path: Path) -> None:
    path = copied(store, tmp_path / "house")
    settings = ServerSettings(state=tmp_path / "state")
    lines = [f"Das ist Satz {number}." for number in range(30)]
    with serving(embedded, [("house", path)], settings) as client:
        identity = sent(client, "long.txt", "\n".join(lines).encode()).json()["id"]
    folder = tmp_path / "state" / "documents" / identity
    done = whole_results(folder / DONE)
    record = json.loads((folder / RECORD).read_text())
    record["state"] = "working"  # as a kill leaves it, with half a line
    (folder / RECORD).write_text(json.dumps(record))
    with (folder / DONE).open("a") as out:
        out.write('{"target": ["cut o')
    with serving(embedded, [("house", path)], settings) as client:
        assert ended(client, identity)["state"] == "done"
        text = client.get(f"/v1/documents/{identity}/result").text.split("\n")
        plain = client.post("/translate", json={"q": lines, "source": "de", "target": "en"}).json()["translatedText"]
    assert len(done) < len(lines) or record["done"] == len(lines)
    assert text == plain


def test_a_short_document_does_not_wait_for_another_s_long_ones(tmp_path: Path) -> None:
    held = threading.Event()

    def slow(_: Scope, client: str, units: Sequence[DocumentUnit]) -> list[UnitResult]:
        if not client.endswith(modest):
            held.wait(60)
        return [UnitResult(unit.source, "machine", 1.0, (), ()) for unit in units]

    def added(owner: str, place: Path) -> str:
        (place / "text.txt").write_text("Haus")
        return jobs.add(place, place / "text.txt", Access(name=owner), Scope("engine", ()), ("de", "en")).id

    jobs = Jobs(tmp_path, slow, ["engine"])
    last = jobs.place()
    modest = last.name
    many = [added("greedy", jobs.place()) for _ in range(6)]
    assert jobs.wait(added("modest", last)).state == "done"
    held.set()
    assert {jobs.wait(one).state for one in many} == {"done"}
    jobs.stop()


def test_documents_that_wait_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("knnmt.service.jobs.WAITING", 0)
    jobs = Jobs(tmp_path, lambda *_: [], ["engine"])
    place = jobs.place()
    (place / "text.txt").write_text("Haus")
    with pytest.raises(BadRequest, match="not done yet"):
        jobs.add(place, place / "text.txt", Access(name="one"), Scope("engine", ()), ("de", "en"))
    jobs.stop()


def test_a_fault_is_told_to_its_owner_and_the_next_job_goes_on(tmp_path: Path) -> None:
    def broken(*_: object) -> list[Any]:
        raise ZeroDivisionError

    jobs = Jobs(tmp_path, broken, ["engine"])
    owner, other = Access(name="owner"), Access(name="other")
    made = []
    for _ in range(2):
        place = jobs.place()
        (place / "text.txt").write_text("Haus")
        made.append(jobs.add(place, place / "text.txt", owner, Scope("engine", ()), ("de", "en")))
    assert [jobs.wait(job.id).error for job in made] == ["a fault of the server; see its log"] * 2
    assert jobs.of(other) == []
    jobs.stop()
