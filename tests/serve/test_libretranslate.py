"""LibreTranslate's shapes, as its clients send and read them."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from serving import serving
from starlette.testclient import TestClient

from knnmt import Translator
from knnmt.models.translation_model import TranslationModel
from knnmt.serve.fields import pairs_in
from knnmt.serve.settings import ServerSettings
from knnmt.service.limits import Limits

TEXT = "Das ist ein Haus."
SENT = {"q": TEXT, "source": "de", "target": "en"}


@pytest.mark.parametrize(
    "request_",
    [
        {"json": SENT},
        {"data": SENT},
        {"files": {name: (None, value) for name, value in SENT.items()}},
        {"params": SENT},
        {"params": SENT, "content": "null", "headers": {"content-type": "application/json"}},
        {"json": SENT | {"api_key": None, "apiKey": "", "unknown": [1], "alternatives": None}},
        {"json": SENT | {"source": "de_DE", "target": "en-GB"}},
        {"json": SENT | {"source": "de-AT", "target": "EN"}},
        {"json": {"q": TEXT, "target": "en"}},
    ],
    ids=[
        "json",
        "form",
        "multipart",
        "query",
        "query and null",
        "nulls and strangers",
        "regions",
        "other regions",
        "no source",
    ],
)
def test_every_way_to_send_gives_the_same_answer(client: TestClient, request_: dict[str, object]) -> None:
    answer = client.post("/translate", **request_)  # type: ignore[arg-type]
    assert answer.status_code == 200
    assert answer.json()["translatedText"] == client.post("/translate", json=SENT).json()["translatedText"]


def test_a_list_is_answered_by_a_list(client: TestClient) -> None:
    texts = ["Hallo.", "", "  ", TEXT, "Hallo.", *(f"Satz {number}." for number in range(40))]
    answer = client.post("/translate", json={"q": texts, "source": "de", "target": "en"}).json()
    alone = [
        client.post("/translate", json={"q": text, "source": "de", "target": "en"}).json()["translatedText"]
        for text in texts[:5]
    ]
    assert len(answer["translatedText"]) == len(texts)
    assert answer["translatedText"][:5] == alone
    assert answer["translatedText"][1] == ""


def test_auto_says_what_it_found(client: TestClient) -> None:
    answer = client.post("/translate", json={"q": TEXT, "source": "auto", "target": "en"}).json()
    assert answer["detectedLanguage"]["language"] == "de"
    listed = client.post("/translate", json={"q": [TEXT, TEXT], "source": "auto", "target": "en"}).json()
    assert [one["language"] for one in listed["detectedLanguage"]] == ["de", "de"]


def test_auto_says_how_likely_it_is(client: TestClient) -> None:
    german, english = TEXT, "This is not what the model reads, and nobody should be told so."
    found = [
        client.post("/translate", json={"q": text, "source": "auto", "target": "en"}).json()["detectedLanguage"]
        for text in (german, english)
    ]
    assert [one["language"] for one in found] == ["de", "de"]
    assert found[0]["confidence"] > 90
    assert found[1]["confidence"] < 10


@pytest.mark.parametrize(
    ("sent", "status", "message"),
    [
        ({"q": TEXT, "source": "fr", "target": "en"}, 400, "fr is not supported"),
        ({"q": TEXT, "source": "de", "target": "xx"}, 400, "xx is not supported"),
        ({"source": "de", "target": "en"}, 400, "Invalid request: missing q parameter"),
        ({"q": TEXT, "source": "de"}, 400, "Invalid request: missing target parameter"),
        ({"q": 7, "source": "de", "target": "en"}, 400, "Invalid request: q must be text"),
        ({"q": [7], "source": "de", "target": "en"}, 400, "Invalid request: q must be text or a list of texts"),
        (
            {"q": "x" * 50_001, "source": "de", "target": "en"},
            400,
            "Invalid request: request (50001) exceeds text limit (50000)",
        ),
        ({**SENT, "format": "pdf"}, 400, "pdf format is not supported"),
    ],
)
def test_errors_say_what_is_wrong(client: TestClient, sent: dict[str, object], status: int, message: str) -> None:
    answer = client.post("/translate", json=sent)
    assert (answer.status_code, answer.json()) == (status, {"error": message})


FORM = {"content-type": "application/x-www-form-urlencoded"}
UMLAUT = "Grüße aus Köln."


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/translate", f"q={UMLAUT}&source=de&target=en".encode()),
        ("/translate", f"q={UMLAUT}&source=de&target=en".encode("latin-1")),
        ("/translate", json.dumps({"q": UMLAUT, "source": "de", "target": "en"}).encode()),
        ("/translate", f" {json.dumps({'q': UMLAUT, 'source': 'de', 'target': 'en'}, ensure_ascii=False)}".encode()),
        ("/translate", b"q=Gr%C3%BC%C3%9Fe+aus+K%C3%B6ln.&source=&target=en&format="),
        ("//translate", b"q=Gr%C3%BC%C3%9Fe+aus+K%C3%B6ln.&source=de&target=en"),
    ],
    ids=["curl -d", "latin-1", "JSON as a form", "JSON as UTF-8", "empty fields", "two slashes"],
)
def test_letters_come_as_they_were_sent(client: TestClient, path: str, body: bytes) -> None:
    expected = client.post("/translate", json={"q": UMLAUT, "source": "de", "target": "en"}).json()["translatedText"]
    answer = client.post(f"{client.base_url}{path}", content=body, headers=FORM)
    assert answer.json().get("translatedText") == expected


def test_letters_of_a_query_string_need_no_percent_signs(client: TestClient) -> None:
    query = f"q={UMLAUT}&source=de&target=en".encode()
    assert pairs_in(query) == [("q", UMLAUT), ("source", "de"), ("target", "en")]


@pytest.mark.parametrize("path", ["/", "/health", "/languages"])
def test_whoever_asks_for_the_head_gets_it(client: TestClient, path: str) -> None:
    answer = client.head(path)
    assert answer.status_code == 200
    assert int(answer.headers["content-length"]) > 0


BODIES = [b"{", b"[]", b"\xff", b'{"q": "\\ud800", "target": "en"}', b'"text"', b"[" * 100_000]


@pytest.mark.parametrize("body", BODIES)
def test_a_body_that_is_no_object_is_refused(client: TestClient, body: bytes) -> None:
    answer = client.post("/translate", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("Invalid request")


def test_alternatives_read_differently(client: TestClient) -> None:
    sent = {"q": [TEXT, ""], "source": "de", "target": "en", "alternatives": 3}
    answer = client.post("/translate", json=sent).json()
    assert len(answer["alternatives"]) == 2
    assert 1 <= len(answer["alternatives"][0]) <= 3
    assert answer["translatedText"][0] not in answer["alternatives"][0]
    assert len(set(answer["alternatives"][0])) == len(answer["alternatives"][0])
    assert client.post("/translate", json=sent | {"alternatives": 99}).status_code == 400
    assert client.post("/translate", json=sent | {"alternatives": "x"}).status_code == 400


def test_a_pair_may_be_echoed(embedded: TranslationModel) -> None:
    with serving(embedded, settings=ServerSettings(echo=("en-de",))) as client:
        answer = client.post("/translate", json={"q": ["test"], "source": "en", "target": "de"})
        assert answer.json() == {"translatedText": ["test"]}
        assert client.post("/translate", json={"q": "test", "source": "en", "target": "fr"}).status_code == 400
        regions = client.post("/translate", json={"q": "test", "source": "en-US", "target": "de_DE"})
        assert regions.json() == {"translatedText": "test"}


def test_a_full_queue_lets_nobody_down(embedded: TranslationModel) -> None:
    settings = ServerSettings(limits=Limits(waiting_characters=10))
    with serving(embedded, settings=settings) as client, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: client.post("/translate", json=SENT), range(16)))
    assert {answer.status_code for answer in answers} == {200}


def test_languages(client: TestClient) -> None:
    expected = [{"code": "de", "name": "German", "targets": ["en"]}, {"code": "en", "name": "English", "targets": []}]
    assert client.get("/languages").json() == expected
    assert client.post("/languages").json() == expected


def test_detect(client: TestClient) -> None:
    assert client.post("/detect", data={"q": TEXT}).json()[0]["language"] == "de"
    assert client.post("/detect", data={"q": " "}).json() == []


def test_health_says_when(client: TestClient) -> None:
    assert client.get("/health").json() == {"status": "ok"}


def test_answers_are_those_of_the_library(client: TestClient, store: object, other_store: object) -> None:
    translator = Translator.from_store([str(store.path), str(other_store.path)])  # type: ignore[attr-defined]
    texts = ["Das ist ein Haus.", "Der Drucker ist kaputt.", "Wir gehen morgen."]
    answer = client.post("/translate", json={"q": texts, "source": "de", "target": "en"}).json()
    assert answer["translatedText"] == translator.translate(texts)


def test_a_model_alone_translates(embedded: TranslationModel) -> None:
    with serving(embedded) as client:
        answer = client.post("/translate", json=SENT).json()
    assert answer == {"translatedText": Translator.from_model("builtin:de-en").translate([TEXT])[0]}
