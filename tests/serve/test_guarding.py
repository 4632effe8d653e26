"""Who may call at all: names, origins, sizes, roles."""

from pathlib import Path

import pytest
from serving import BASE, serving
from starlette.testclient import TestClient

from knnmt import Store
from knnmt.errors import SettingsError
from knnmt.models.translation_model import TranslationModel
from knnmt.serve.settings import ServerSettings
from knnmt.service.access import Access, add_api_key
from knnmt.service.limits import Limits

SENT = {"q": "Haus", "source": "de", "target": "en"}


def test_headers_keep_the_page_to_itself(client: TestClient) -> None:
    headers = client.get("/health").headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://127.0.0.1:5000"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"host": "evil.example"}, 403),
        ({"host": "evil.example", "origin": "http://evil.example"}, 403),
        ({"host": "localhost:5000"}, 200),
        ({"host": "[::1]:5000"}, 200),
        ({"host": "[::1"}, 403),
    ],
)
def test_pages_of_other_sites_may_not_call(client: TestClient, headers: dict[str, str], status: int) -> None:
    assert client.post("/translate", data=SENT, headers=headers).status_code == status


def test_a_named_origin_may(embedded: TranslationModel) -> None:
    settings = ServerSettings(cors=("https://cms.example",))
    with serving(embedded, settings=settings) as client:
        ask = {"origin": "https://cms.example", "access-control-request-method": "POST"}
        assert client.options("/translate", headers=ask).headers["access-control-allow-origin"] == ask["origin"]
        answer = client.post("/translate", json=SENT, headers={"origin": "https://cms.example"})
        assert answer.headers["access-control-allow-origin"] == "https://cms.example"
        assert client.post("/translate", json=SENT, headers={"origin": "https://other.example"}).status_code == 403


def test_without_keys_only_this_machine(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--public"):
        ServerSettings(host="0.0.0.0")
    ServerSettings(host="0.0.0.0", public=True)
    ServerSettings(host="0.0.0.0", api_keys=tmp_path / "keys.json")


def test_bodies_end(embedded: TranslationModel) -> None:
    settings = ServerSettings(limits=Limits(body_bytes=1000, upload_bytes=2000))
    with serving(embedded, settings=settings) as client:
        for body in (b"x" * 1001, (b"x" * 100 for _ in range(11))):
            assert client.post("/translate", content=body).status_code == 413
        assert client.post("/translate", files={"q": (None, "x" * 1500)}).status_code == 413


def test_a_fault_is_a_500_and_the_log_holds_no_text(
    embedded: TranslationModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: object, __: object, texts: list[str]) -> None:
        raise KeyError(texts[0])

    monkeypatch.setattr("knnmt.service.service.answered", broken)
    with serving(embedded) as client:
        answer = client.post("/translate", json=SENT | {"q": "Geheimnis"})
        assert (answer.status_code, list(answer.json())) == (500, ["error"])
        assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "KeyError" in caplog.text
    assert "Geheimnis" not in caplog.text + answer.text


def test_roles(embedded: TranslationModel, store: Store, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    keys = {role: add_api_key(file, Access(name=role, role=role)) for role in ("translate", "correct", "admin")}
    calls = {
        "translate": ("POST", "/v1/translations", {"texts": []}),
        "correct": ("POST", "/v1/corrections", {"text": "", "correction": ""}),
        "admin": ("GET", "/v1/memories/house/versions", None),
    }
    with serving(embedded, [("house", store.path)], ServerSettings(api_keys=file)) as client:
        for rank, (role, key) in enumerate(keys.items()):
            for needed, (method, path, body) in enumerate(calls.values()):
                answer = client.request(method, path, json=body, headers={"authorization": f"Bearer {key}"})
                assert (answer.status_code == 403) == (rank < needed), (role, path, answer.text)
        assert client.post("/translate", json=SENT).status_code == 400
        assert client.post("/translate", json=SENT | {"api_key": "wrong"}).status_code == 403
        for sent in (
            {"json": SENT | {"api_key": keys["translate"]}},
            {"params": SENT | {"api_key": keys["translate"]}},
        ):
            assert client.post("/translate", **sent).status_code == 200  # type: ignore[arg-type]


def test_weblate_connects_with_a_key(embedded: TranslationModel, store: Store, tmp_path: Path) -> None:
    """It asks for the languages without its key, and has no place for a key of tmserver but the address."""
    file = tmp_path / "keys.json"
    key = add_api_key(file, Access(name="weblate"))
    with serving(embedded, [("house", store.path)], ServerSettings(api_keys=file)) as client:
        assert [one["code"] for one in client.get("/languages").json()] == ["de", "en"]
        assert client.get("/languages", params={"api_key": "wrong"}).status_code == 403
        place = "/tmserver/languages/"
        assert client.get(place).status_code == 400
        for auth in ((key, ""), ("any", key)):
            assert client.get(place, auth=auth).json()["sourceLanguages"] == ["de"]
        assert client.get(place, auth=("any", "wrong")).status_code == 403
        assert client.get(place, headers={"authorization": "Basic ?"}).status_code == 400
        assert client.post("/translate", json=SENT | {"api_key": key}, auth=("proxy", "own")).status_code == 200


def test_a_rate_is_answered_with_when(embedded: TranslationModel, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    key = add_api_key(file, Access(name="slow", rate=2))
    with serving(embedded, settings=ServerSettings(api_keys=file)) as client:
        answers = [client.post("/translate", json=SENT | {"api_key": key}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert 1 <= int(answers[2].headers["retry-after"]) <= 30


def test_a_deadline_is_a_clear_500(embedded: TranslationModel) -> None:
    with serving(embedded, settings=ServerSettings(limits=Limits(deadline=1e-9))) as client:
        answer = client.post("/translate", json=SENT)
    assert (answer.status_code, "deadline" in answer.json()["error"]) == (500, True)


def test_whoever_comes_through_a_proxy_may_only_translate(embedded: TranslationModel, store: Store) -> None:
    """Without keys it is this machine's own programs that may do everything."""
    settings = ServerSettings(hosts=("translate.example",))
    with serving(embedded, [("house", store.path)], settings) as client:
        outside = {"host": "translate.example"}
        assert client.post("/translate", data=SENT, headers=outside).status_code == 200
        assert client.get("/v1/memories/house/export").status_code == 200
        assert client.get("/v1/memories/house/export", headers=outside).status_code == 403


def test_strangers_do_not_see_each_other_s_documents(embedded: TranslationModel, store: Store) -> None:
    settings = ServerSettings(host="0.0.0.0", public=True)
    with serving(embedded, [("house", store.path)], settings) as client:
        other = client_from(client, "192.0.2.7")
        files = {"file": ("text.txt", b"Haus")}
        sent = client.post("/v1/documents", data={"source": "de", "target": "en"}, files=files).json()
        assert [one["id"] for one in client.get("/v1/documents").json()] == [sent["id"]]
        assert other.get("/v1/documents").json() == []
        assert other.get(f"/v1/documents/{sent['id']}").status_code == 404


def client_from(client: TestClient, address: str) -> TestClient:
    """The same server, called from another machine."""
    made = TestClient(client.app, base_url=BASE, raise_server_exceptions=False, client=(address, 1))
    made.portal = client.portal  # the thread that the server runs in
    return made
