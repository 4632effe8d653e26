"""Three keys with disjoint filters on one memory, and random requests against a model of what each may see.

Every pair's target has a mark that says whose it is. A mark of somebody else in any answer, or an answer that differs
from what the key's own pairs allow, is a leak.
"""

import os
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from serving import serving
from starlette.testclient import TestClient
from tiny_models import tiny_model

from knnmt import BuildSettings, Corpus, build_store
from knnmt.serve.settings import ServerSettings
from knnmt.service.access import Access, add_api_key
from knnmt.service.limits import Limits

PATIENCE = 3600.0  # seconds, for a machine that does much else or is suspended
REQUESTS = int(os.environ.get("KNNMT_LEAK_REQUESTS", "80"))
CLIENTS = "abc"
WORDS = ["das", "ist", "ein", "haus", "wir", "gehen", "heute", "in", "die", "stadt", "und", "kaufen", "brot"]
MARK = re.compile(r"zq([abc])\d+")


@dataclass
class Seen:
    """What one key may see: targets by source, the newest last."""

    client: str
    headers: dict[str, str]
    pairs: dict[str, str] = field(default_factory=dict)
    learned: list[tuple[str, str, str | None]] = field(default_factory=list)  # id, source, what it replaced


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, list[Seen]]]:
    folder = tmp_path_factory.mktemp("leaks")
    model = tiny_model("marian")
    seen = [Seen(client, {}) for client in CLIENTS]
    lines = ['{"source": "gemeinsam nichts", "target": "nobody sees this zqn"}\n']
    for number in range(20):
        source = sentence(random.Random(number))
        for one in seen:  # the same source for all, so that exact matches must be told apart
            one.pairs[source] = f"the house zq{one.client}{number}"
            lines.append(f'{{"source": "{source}", "target": "{one.pairs[source]}", "client": "{one.client}"}}\n')
    (folder / "memory.jsonl").write_text("".join(lines), encoding="utf-8")
    build_store(folder / "house", model, [Corpus(folder / "memory.jsonl")], BuildSettings())
    for one in seen:
        access = Access(name=one.client, role="admin", filters=(f"client={one.client}",))
        one.headers["authorization"] = f"Bearer {add_api_key(folder / 'keys.json', access)}"
    settings = ServerSettings(api_keys=folder / "keys.json", state=folder / "state", limits=Limits(deadline=PATIENCE))
    with serving(model, [("house", folder / "house")], settings) as client:
        yield client, seen


def sentence(chance: random.Random) -> str:
    return " ".join(chance.choice(WORDS) for _ in range(chance.randint(2, 5)))


def test_nobody_sees_what_is_not_theirs(world: tuple[TestClient, list[Seen]]) -> None:
    client, seen = world
    chance = random.Random(7)
    for number in range(REQUESTS):
        one = chance.choice(seen)
        other = chance.choice([another for another in seen if another is not one])
        action = chance.choices(ACTIONS, WEIGHTS)[0]
        answer = action(client, one, other, chance, number)
        for text in answer:
            marks = set(MARK.findall(text)) - {one.client}
            assert not marks, f"request {number}: {action.__name__} of {one.client} shows {marks}"
            assert "zqn" not in text


def asked(client: TestClient, one: Seen, method: str, path: str, **more: Any) -> Any:
    answer = client.request(method, path, headers=one.headers, **more)
    assert answer.status_code < 500, answer.text
    return answer


def translates(client: TestClient, one: Seen, other: Seen, chance: random.Random, number: int) -> list[str]:
    known = chance.choice([*one.pairs, *other.pairs, sentence(chance)])
    filters = chance.choice([[], [f"client={other.client}"], ["client!=x"], [f"client={one.client}"]])
    sent = {"texts": [known], "explain": True, "filters": filters}
    answer = asked(client, one, "POST", "/v1/translations", json=sent)
    made = answer.json()["translations"][0]
    allowed = one.pairs if filters != [f"client={other.client}"] else {}
    if known in allowed:
        assert (made["text"], made["origin"]) == (allowed[known], "exact")
    else:
        assert made["origin"] != "exact"
    return [answer.text]


def explains(client: TestClient, one: Seen, other: Seen, chance: random.Random, number: int) -> list[str]:
    filters = chance.choice([[], [f"client={other.client}"], ["client>=a"]])
    sent = {"text": sentence(chance), "filters": filters}
    return [asked(client, one, "POST", "/v1/explanations", json=sent).text]


def speaks_libretranslate(client: TestClient, one: Seen, other: Seen, chance: random.Random, number: int) -> list[str]:
    known = chance.choice([*other.pairs, sentence(chance)])
    answer = asked(client, one, "POST", "/translate", json={"q": [known], "source": "de", "target": "en"})
    if known in one.pairs:
        assert answer.json()["translatedText"] == [one.pairs[known]]
    return [answer.text]


def searches(client: TestClient, one: Seen, other: Seen, chance: random.Random, number: int) -> list[str]:
    query = chance.choice(["", "zq", other.client, "haus", f"zq{other.client}"])
    filters = chance.choice([None, f"client={other.client}", "client!=x", "corpus=memory"])
    params = {"q": query, "limit": 200} | ({"filter": filters} if filters else {})
    answer = asked(client, one, "GET", "/v1/memories/house/segments", params=params)
    found = {(pair["source"], pair["target"]) for pair in answer.json()["segments"]}
    assert found <= set(one.pairs.items())
    if query == "" and filters is None:
        assert found == set(one.pairs.items())
    return [answer.text]


def looks_up(client: TestClient, one: Seen, other: Seen, chance: random.Random, number: int) -> list[str]:
    known = chance.choice([*other.pairs, sentence(chance)])
    answer = asked(client, one, "GET", f"/tmserver/de/en/unit/{known}")
    assert {(hit["source"], hit["target"]) for hit in answer.json()} <= set(one.pairs.items())
    return [answer.text]


def counts(client: TestClient, one: Seen, other: Seen, chance: random.Random, number: int) -> list[str]:
    answer = asked(client, one, "GET", "/v1/memories")
    assert answer.json()[0]["segments"] == len(one.pairs)
    return [answer.text, asked(client, one, "GET", "/v1/metrics").text]


def exports(client: TestClient, one: Seen, other: Seen, chance: random.Random, number: int) -> list[str]:
    answer = asked(client, one, "GET", "/v1/memories/house/export", params={"format": chance.choice(["tmx", "jsonl"])})
    assert answer.text.count("zq") == len(one.pairs)
    return [answer.text]


def corrects(client: TestClient, one: Seen, other: Seen, chance: random.Random, number: int) -> list[str]:
    source = chance.choice([*other.pairs, sentence(chance)])
    metadata = chance.choice([{}, {"note": "x"}, {"client": other.client}])
    sent = {"text": source, "correction": f"right zq{one.client}{1000 + number}", "metadata": metadata}
    answer = asked(client, one, "POST", "/v1/corrections", json=sent)
    if metadata == {"client": other.client}:
        assert answer.status_code == 400
    else:
        one.learned.append((answer.json()["id"], source, one.pairs.get(source)))
        one.pairs[source] = sent["correction"]
    return [answer.text]


def undoes(client: TestClient, one: Seen, other: Seen, chance: random.Random, number: int) -> list[str]:
    if other.learned:  # somebody else's is as one that is not there
        assert asked(client, one, "DELETE", f"/v1/corrections/{other.learned[-1][0]}").status_code == 404
    if not one.learned:
        return []
    identity, source, before = one.learned.pop()
    answer = asked(client, one, "DELETE", f"/v1/corrections/{identity}")
    assert answer.status_code == 200
    if before is None:
        del one.pairs[source]
    else:
        one.pairs[source] = before
    return [answer.text]


def deletes_another_s(client: TestClient, one: Seen, other: Seen, chance: random.Random, number: int) -> list[str]:
    theirs = asked(client, other, "GET", "/v1/memories/house/segments", params={"limit": 5}).json()["segments"]
    answer = asked(client, one, "DELETE", f"/v1/memories/house/segments/{theirs[0]['id']}")
    assert answer.status_code == 404
    whole = [asked(client, one, "GET", "/v1/memories/house/versions")]
    whole.append(asked(client, one, "POST", "/v1/memories/house/rollback", json={"version": 1}))
    assert {one.status_code for one in whole} == {403}
    return [answer.text, *(one.text for one in whole)]


def sends_a_document(client: TestClient, one: Seen, other: Seen, chance: random.Random, number: int) -> list[str]:
    lines = [chance.choice([*other.pairs, sentence(chance)]) for _ in range(4)]
    files = {"file": ("text.txt", "\n".join(lines).encode())}
    sent = asked(client, one, "POST", "/translate_file", data={"source": "de", "target": "en"}, files=files)
    url = sent.json()["translatedFileUrl"]
    done = asked(client, one, "GET", url).text.split("\n")
    for line, made in zip(lines, done, strict=True):
        if line in one.pairs:
            assert made == one.pairs[line]
    identity = Path(url).name.partition(".")[0]
    assert asked(client, other, "GET", f"/v1/documents/{identity}").status_code == 404
    report = asked(client, one, "GET", f"/v1/documents/{identity}/report").text
    asked(client, one, "DELETE", f"/v1/documents/{identity}")
    return ["\n".join(done), report]


ACTIONS = (
    translates, explains, speaks_libretranslate, searches, looks_up, counts, exports, corrects, undoes,
    deletes_another_s, sends_a_document,
)  # fmt: skip
SLOW = {explains: 0.2, sends_a_document: 0.5}  # what costs most is asked less often
WEIGHTS = [SLOW.get(action, 1.0) for action in ACTIONS]
