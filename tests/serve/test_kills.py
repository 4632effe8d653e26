"""A server that is killed while corrections stream in: every one that it acknowledged is there, no store is damaged.

And one that is told to end: it answers what it has, and then ends well.
"""

import http.client
import json
import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from tiny_models import tiny_folder, tiny_model

from knnmt import Corpus, Store, build_store
from knnmt.store.verification import problems_of

KILLS = int(os.environ.get("KNNMT_KILLS", "2"))
SENDERS = 3
ENDING = 120  # seconds that a server may take to end
PATIENCE = 3600  # seconds, for a machine that does much else or is suspended
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["knnmt.serve.running", "knnmt.service.shelf"])  # imported once, not for each kill


def run_server(store: str, state: str, port: Connection) -> None:
    """In a process of its own."""
    import torch

    from knnmt.serve.running import Running
    from knnmt.serve.settings import ServerSettings
    from knnmt.service.limits import Limits
    from knnmt.service.shelf import shelve

    torch.set_num_threads(1)
    running = Running(
        lambda: shelve([store]), ServerSettings(port=0, state=Path(state), limits=Limits(deadline=PATIENCE))
    )
    port.send(running.port)
    running.run()


@contextmanager
def served(store: Path, state: Path) -> Iterator[tuple[int, int]]:
    """Port and process id of a server."""
    ours, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=run_server, args=(f"house={store}", str(state), theirs), daemon=True)
    process.start()
    try:
        assert process.pid is not None
        yield ours.recv(), process.pid
    finally:
        process.join(ENDING)
        if process.is_alive():
            process.kill()
            process.join()


def learn(port: int, source: str, target: str) -> str | None:
    """The correction's id; None where the server was gone before it answered."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        body = json.dumps({"text": source, "correction": target, "source": "de"})
        connection.request("POST", "/v1/corrections", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        content = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    assert answer.status == 200, content
    return str(content["id"])


def stream(port: int, name: str, known: dict[str, str], stop: threading.Event) -> None:
    """Corrections one after another, some of them of sentences that were corrected before."""
    number = 0
    while not stop.is_set():
        source, target = f"Satz {name} {number % 7}", f"Sentence {name} {number}"
        if learn(port, source, target) is None:
            known.pop(source, None)  # it may or may not be there: nothing was said
            return
        known[source] = target
        number += 1


def made_store(folder: Path) -> Path:
    (folder / "memory.tsv").write_text("das ist ein haus\tthis is a house\n" * 1, encoding="utf-8")
    build_store(folder / "house", tiny_model("marian"), [Corpus(folder / "memory.tsv")])
    assert tiny_folder("marian").is_dir()
    return folder / "house"


def newest(store: Store) -> dict[str, str]:
    return {pair.source: pair.target for pair in store.all_segments()}


def test_what_was_acknowledged_is_there_after_a_kill(tmp_path: Path) -> None:
    path, chance = made_store(tmp_path), random.Random(3)
    acknowledged: dict[str, str] = {}
    for kill in range(KILLS):
        with served(path, tmp_path / "state") as (port, process):
            assert learn(port, f"Anfang {kill}", "begin") is not None
            acknowledged[f"Anfang {kill}"] = "begin"
            stop, known = threading.Event(), [dict[str, str]() for _ in range(SENDERS)]
            senders = [
                threading.Thread(target=stream, args=(port, f"{kill} {number}", known[number], stop))
                for number in range(SENDERS)
            ]
            for sender in senders:
                sender.start()
            time.sleep(chance.uniform(0.05, 0.7))
            os.kill(process, signal.SIGKILL)
            stop.set()
            for sender in senders:
                sender.join()
        for some in known:
            acknowledged |= some
        store = Store.open(path)
        found = newest(store)
        lost = {source: target for source, target in acknowledged.items() if found.get(source) != target}
        assert not lost, f"after kill {kill + 1}: {lost}"
        assert list(problems_of(store)) == []


def test_told_to_end_it_answers_what_it_has(tmp_path: Path) -> None:
    path = made_store(tmp_path)
    with served(path, tmp_path / "state") as (port, process):
        assert learn(port, "Anfang", "begin") is not None
        answers: list[str | None] = []
        senders = [
            threading.Thread(target=lambda number=number: answers.append(learn(port, f"Satz {number}", "x")))
            for number in range(8)
        ]
        for sender in senders:
            sender.start()
        time.sleep(0.15)
        os.kill(process, signal.SIGTERM)
        for sender in senders:
            sender.join()
    acknowledged = sum(answer is not None for answer in answers)
    found = [source for source in newest(Store.open(path)) if source.startswith("Satz")]
    assert len(found) >= acknowledged
