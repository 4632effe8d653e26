"""DeepL's and tmserver's shapes, metrics, and texts with markup."""

import re

import pytest
from starlette.testclient import TestClient

from knnmt import Store

SENTENCE = "Das ist ein Haus."


def plain(client: TestClient, text: str, **more: object) -> str:
    answer = client.post("/translate", json={"q": text, "source": "de", "target": "en", **more})
    assert answer.status_code == 200, answer.text
    found: str = answer.json()["translatedText"]
    return found


@pytest.mark.parametrize("place", ["", "/deepl"])
def test_deepl(client: TestClient, place: str) -> None:
    sent = {"text": [SENTENCE, "Hallo."], "target_lang": "EN-GB", "show_billed_characters": True}
    answer = client.post(f"{place}/v2/translate", json=sent, headers={"authorization": "DeepL-Auth-Key x"}).json()
    first = answer["translations"][0]
    assert first == {"detected_source_language": "DE", "text": plain(client, SENTENCE), "billed_characters": 17}
    form = client.post("/deepl/v2/translate", data={"text": [SENTENCE], "target_lang": "EN"}).json()
    assert form["translations"][0]["text"] == first["text"]
    languages = client.get("/deepl/v2/languages", params={"type": "target"}).json()
    assert languages == [{"language": "EN", "name": "English", "supports_formality": False}]
    assert set(client.get("/deepl/v2/usage").json()) == {"character_count", "character_limit"}


def test_deepl_s_clients_find_the_message(client: TestClient) -> None:
    answer = client.post("/v2/translate", json={"text": ["Haus"], "target_lang": "QQ"})
    assert (answer.status_code, answer.json()["message"]) == (400, "QQ is not supported")


def test_deepl_keeps_tags(client: TestClient) -> None:
    sent = {"text": 'Das ist <x id="1"/>ein &amp; Haus.', "target_lang": "EN", "tag_handling": "xml"}
    text = client.post("/deepl/v2/translate", json=sent).json()["translations"][0]["text"]
    assert text.count('<x id="1"/>') == 1
    assert "&amp;amp;" not in text


def test_apertium_for_omegat(client: TestClient) -> None:
    """As OmegaT writes the address, its key and tags with it."""
    asked = "markUnknown=no&langpair=de_AT|en&key=null&q=Das+ist+%3Cg1%3Eein+Haus%3C%2Fg1%3E."
    answer = client.get(f"/apertium/translate?{asked}").json()
    assert answer["responseStatus"] == 200
    assert re.search("<g1>[^<>]+</g1>", answer["responseData"]["translatedText"])
    assert client.get("/apertium/translate", params={"q": "Haus", "langpair": "de|fr"}).status_code == 400
    assert client.get("/apertium/translate", params={"q": "Haus"}).status_code == 400


def test_tmserver(client: TestClient, store: Store) -> None:
    pair = store.segment(3)
    assert client.get("/tmserver/languages/").json() == {"sourceLanguages": ["de"], "targetLanguages": ["en"]}
    found = client.get(f"/tmserver/de/en/unit/{pair.source}").json()
    assert found[0] == {"source": pair.source, "target": pair.target, "quality": 100, "rank": 100}
    assert client.get("/tmserver/de/en/unit/qqq").json() == []
    for odd in ("%0A", "%2F", "%3F%23"):
        assert client.get(f"/tmserver/de/en/unit/{pair.source}{odd}").json()[0]["target"] == pair.target


@pytest.mark.parametrize(
    "text", ["Prüfen Sie [X3X].", "Drücken Sie [X3X], um die Lampe zu prüfen.", "Prüfen Sie [X3X], [X9X] und [X12X]."]
)
@pytest.mark.parametrize("form", ["text", "html"])
def test_weblate_s_marks_stand_as_words_do(client: TestClient, text: str, form: str) -> None:
    found = plain(client, text, format=form)
    assert re.findall(r"\[X\d+X\]", found) == re.findall(r"\[X\d+X\]", text)
    assert not re.search(r"\w\[|\]\w", found), found


@pytest.mark.parametrize("mark", ["[X10X]", '<x id="10"></x>', "%(name)s", "{0}"])
def test_marks_come_through_in_place(client: TestClient, mark: str) -> None:
    text = plain(client, f"Öffnen Sie {mark} im Haus.")
    assert text.count(mark) == 1
    assert not text.startswith(mark)


def test_tags_around_words_stay_a_pair(client: TestClient) -> None:
    for form in ("text", "html"):
        text = plain(client, 'Das ist <a id="a1">ein Haus</a>.', format=form)
        assert re.search(r'<a id="a1">[^<>]+</a>', text), text


def test_html_is_escaped_once(client: TestClient) -> None:
    assert "<" not in plain(client, "Das Haus &lt; der Baum", format="html").replace("&lt;", "")
    assert plain(client, "<p></p>", format="html") == "<p></p>"
    text = plain(client, "<p>Das ist ein Haus.</p><p>Hallo.</p>", format="html")
    assert re.fullmatch(r"<p>[^<]+</p><p>[^<]+</p>", text)


def test_a_long_text_keeps_its_lines(client: TestClient) -> None:
    text = "\n".join(["Das ist ein Haus.", ""] * 80)
    lines = plain(client, text).split("\n")
    assert lines == [plain(client, line) for line in ("Das ist ein Haus.", "")] * 80


def test_metrics_hold_no_text(client: TestClient) -> None:
    plain(client, "Geheimnisvoll")
    client.get("/tmserver/de/en/unit/Geheimnisvoll")
    text = client.get("/v1/metrics").text
    assert 'knnmt_requests_total{method="POST",route="/translate",status="200"}' in text
    assert "Geheimnis" not in text
    assert re.search(r"knnmt_request_seconds_count [1-9]", text)
