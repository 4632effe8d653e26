"""Our own API: reasons, corrections that hold at once, and memories."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import copied, serving
from starlette.testclient import TestClient

from knnmt import Store
from knnmt.models.translation_model import TranslationModel

TEXT = "Reinigen Sie die Kette mit einem Tuch."
RIGHT = "Wipe the chain with a rag."


@pytest.fixture(scope="module")
def own(embedded: TranslationModel, store: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A server with a memory that tests may change."""
    path = copied(store, tmp_path_factory.mktemp("served") / "house")
    with serving(embedded, [("house", path)]) as client:
        yield client


def translated(client: TestClient, text: str = TEXT, **more: object) -> dict[str, object]:
    answer = client.post("/v1/translations", json={"texts": [text], **more})
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()["translations"][0]
    return found


def learned(client: TestClient, text: str, correction: str, **more: object) -> str:
    answer = client.post("/v1/corrections", json={"text": text, "correction": correction, **more})
    assert answer.status_code == 200, answer.text
    identity: str = answer.json()["id"]
    return identity


def test_every_word_has_its_share(client: TestClient) -> None:
    answer = translated(client, explain=True)
    words = answer["words"]
    assert "".join(word["text"] for word in words) == answer["text"].replace(" ", "")  # type: ignore[attr-defined]
    assert all(0 <= word["share"] <= 1 for word in words)  # type: ignore[attr-defined]
    best = max(words, key=lambda word: word["share"])  # type: ignore[call-overload]
    first = best["sentences"][0]
    assert first["store"] in ("house", "other")
    assert first["created"]
    assert all(0 <= start < end <= len(first["target"]) for start, end in first["marks"])
    assert sum(one["support"] for one in best["sentences"]) <= best["share"] + 1e-6


def test_weight_0_is_the_model_alone(client: TestClient, embedded: TranslationModel) -> None:
    answer = translated(client, settings={"weight": 0})
    with serving(embedded) as alone:
        assert answer["text"] == translated(alone)["text"]
    assert (answer["share"], answer["origin"]) == (0, "model")


def test_a_correction_holds_at_once_and_is_undone(own: TestClient) -> None:
    before = translated(own)
    identity = learned(own, TEXT, RIGHT, metadata={"by": "someone"})
    after = translated(own)
    assert (after["text"], after["origin"], after["share"]) == (RIGHT, "exact", 1)
    assert after["match"]["metadata"] == {"by": "someone"}  # type: ignore[index]
    sent = {"q": f"  {TEXT}\n", "source": "de", "target": "en"}
    assert own.post("/translate", json=sent).json()["translatedText"] == f"  {RIGHT}\n"
    assert own.delete(f"/v1/corrections/{identity}").json()["source"] == TEXT
    assert translated(own)["text"] == before["text"]
    assert own.delete(f"/v1/corrections/{identity}").status_code == 404


def test_the_last_of_two_memories_that_are_taught_holds(
    embedded: TranslationModel, store: Store, other_store: Store, tmp_path: Path
) -> None:
    stores = [(name, copied(one, tmp_path / name)) for name, one in (("house", store), ("other", other_store))]
    with serving(embedded, stores) as client:
        for number, name in enumerate(("house", "other", "house", "other")):
            learned(client, TEXT, f"Number {number}.", store=name)
            assert translated(client)["text"] == f"Number {number}."
            block = translated(client, f"<p>{TEXT}</p>", format="html")  # looked up as units of documents are
            assert block["text"] == f"<p>Number {number}.</p>"


def test_corrections_of_corrections_are_undone_in_turn(own: TestClient) -> None:
    before = translated(own)["text"]
    made = [learned(own, TEXT, f"Number {number}.") for number in range(4)]
    for number in (3, 2, 1, 0):
        assert translated(own)["text"] == f"Number {number}."
        assert own.delete(f"/v1/corrections/{made[number]}").status_code == 200
    assert translated(own)["text"] == before


def test_a_suggestion_is_a_correction(own: TestClient) -> None:
    sent = {"q": "Guten Morgen, Werkstatt!", "s": "Morning, workshop!", "source": "de", "target": "en"}
    assert own.post("/suggest", data=sent).json() == {"success": True}
    answer = own.post("/translate", json={"q": sent["q"], "source": "de", "target": "en"}).json()
    assert answer["translatedText"] == sent["s"]


@pytest.mark.parametrize(
    "sent",
    [
        {"text": " ", "correction": "x"},
        {"text": "x", "correction": ""},
        {"text": "x", "correction": "y", "metadata": {"correction": "z"}},
        {"text": "x", "correction": "y", "metadata": {"a": "z" * 3000}},
        {"text": "wort " * 2000, "correction": "y"},
        {"text": "x", "correction": "y", "target": "fr"},
        {"text": "x"},
        {"text": "x", "correction": "y", "metadata": {"a": 1}},
    ],
)
def test_a_correction_that_cannot_be_learned_is_refused(own: TestClient, sent: dict[str, object]) -> None:
    answer = own.post("/v1/corrections", json=sent)
    assert answer.status_code == 400
    assert set(answer.json()) == {"error"}


def test_there_must_be_a_memory(embedded: TranslationModel) -> None:
    with serving(embedded) as alone:
        answer = alone.post("/v1/corrections", json={"text": "x", "correction": "y"})
        assert (answer.status_code, "--store" in answer.json()["error"]) == (400, True)


def test_memories_are_listed_and_searched(own: TestClient, store: Store) -> None:
    listed = own.get("/v1/memories").json()[0]
    assert (listed["name"], listed["source"], listed["target"]) == ("house", "de", "en")
    assert listed["segments"] >= store.live_segments
    found = own.get("/v1/memories/house/segments", params={"q": "KETTE", "limit": 3}).json()
    assert found["segments"]
    assert all("kette" in (one["source"] + one["target"]).lower() for one in found["segments"])
    every = []
    after = 0
    while after is not None:
        page = own.get("/v1/memories/house/segments", params={"limit": 30, "after": after}).json()
        every += [one["id"] for one in page["segments"]]
        after = page["next"]
    assert len(every) == len(set(every)) == own.get("/v1/memories").json()[0]["segments"]


def test_pairs_are_added_found_and_deleted(own: TestClient) -> None:
    pairs = [{"source": f"Neues Wort {n}", "target": f"New word {n}", "metadata": {"n": str(n)}} for n in range(3)]
    added = own.post("/v1/memories/house/segments", json={"segments": pairs}).json()
    assert len(added["ids"]) == 3
    found = own.get("/v1/memories/house/segments", params={"q": "neues wort", "filter": "n=1"}).json()["segments"]
    assert [one["target"] for one in found] == ["New word 1"]
    assert own.delete(f"/v1/memories/house/segments/{found[0]['id']}").json()["deleted"] == 1
    assert own.delete(f"/v1/memories/house/segments/{found[0]['id']}").status_code == 404
    left = own.get("/v1/memories/house/segments", params={"q": "neues wort"}).json()["segments"]
    assert {one["target"] for one in left} == {"New word 0", "New word 2"}
    ids = [one["id"] for one in left]
    assert own.post("/v1/memories/house/segments/delete", json={"ids": ids}).json()["deleted"] == 2


def test_history_and_rollback(own: TestClient) -> None:
    before = own.get("/v1/memories/house/versions").json()[0]
    learned(own, "Etwas ganz Neues.", "Something entirely new.")
    after = own.get("/v1/memories/house/versions").json()
    assert after[0]["current"]
    assert after[0]["change"] == "learned “Etwas ganz Neues.”"
    assert after[0]["segments"] == before["segments"] + 1
    back = own.post("/v1/memories/house/rollback", json={"version": before["version"]})
    assert back.json()["version"] == after[0]["version"] + 1
    assert own.get("/v1/memories/house/versions").json()[0]["segments"] == before["segments"]
    assert own.post("/v1/memories/house/rollback", json={"version": 10_000}).status_code == 400


@pytest.mark.parametrize("kind", ["xlf", "", "../../tmx"])
def test_only_known_formats_are_exported(own: TestClient, kind: str) -> None:
    refused = own.get("/v1/memories/house/export", params={"format": kind})
    assert refused.status_code == 400
    assert refused.json()["error"].endswith("is not tmx, tsv, csv or jsonl")


@pytest.mark.parametrize("kind", ["tmx", "tsv", "csv", "jsonl"])
def test_what_is_exported_can_be_imported(own: TestClient, kind: str) -> None:
    exported = own.get("/v1/memories/house/export", params={"format": kind})
    assert exported.headers["content-disposition"] == f'attachment; filename="house.{kind}"'
    files = {"file": (f"house.{kind}", exported.content)}
    imported = own.post("/v1/memories/house/import", files=files).json()
    assert imported["segments"] == 0
    assert imported["duplicates"] == own.get("/v1/memories").json()[0]["segments"]


@pytest.mark.parametrize(
    ("name", "content", "status"),
    [
        ("../../etc/passwd", b"x", 400),
        ("pairs.doc", b"x", 400),
        ("pairs.tmx", b"<tmx", 400),
        ("pairs.tsv.gz", b"not gzip", 400),
        ("..\\..\\pairs.tsv", b"Ein Rad\tA wheel\n", 200),
    ],
)
def test_uploads_are_not_trusted(own: TestClient, name: str, content: bytes, status: int) -> None:
    answer = own.post("/v1/memories/house/import", files={"file": (name, content)})
    assert answer.status_code == status, answer.text
    if status == 400:
        assert "/tmp" not in answer.json()["error"]


def test_a_store_that_another_process_changes_is_taken_up(
    embedded: TranslationModel, store: Store, tmp_path: Path
) -> None:
    from living import corpus_of

    from knnmt.store.adding import add_to_store

    path = copied(store, tmp_path / "house")
    with serving(embedded, [("house", path)]) as client:
        translated(client, "Das hat nie jemand gesagt.")
        add_to_store(path, embedded, [corpus_of(tmp_path, [("Das hat nie jemand gesagt.", "Now somebody did.")])])
        assert translated(client, "Das hat nie jemand gesagt.")["text"] == "Now somebody did."
