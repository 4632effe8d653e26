"""A model is run by one thread of its own, whoever asks."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from serving import copied, serving

from knnmt import Store
from knnmt.models.translation_model import TranslationModel
from knnmt.service.model_thread import ModelThread, in_passing_thread


def test_calls_are_made_one_after_another_in_order() -> None:
    thread, order, go = ModelThread(), [], threading.Event()
    with ThreadPoolExecutor(4) as clients:
        first = clients.submit(thread.run, go.wait)
        while not thread._pool._threads:
            pass
        waiting = []
        for number in range(3):
            waiting.append(clients.submit(thread.run, lambda number=number: order.append(number)))  # type: ignore[misc]
            while thread._pool._work_queue.qsize() <= number:
                pass
        assert order == []
        go.set()
        assert first.result()
        for one in waiting:
            one.result()
    assert order == [0, 1, 2]
    thread.stop()


def test_a_failure_reaches_the_caller_and_the_next_call_is_made() -> None:
    thread = ModelThread()
    with pytest.raises(ZeroDivisionError):
        thread.run(lambda: 1 // 0)
    assert thread.run(lambda: 1 // 1) == 1
    thread.stop()


def test_a_passing_thread_ends_with_its_call() -> None:
    thread = in_passing_thread(threading.current_thread)
    assert thread is not threading.current_thread()
    assert not thread.is_alive()


def test_one_thread_of_a_server_runs_the_network(embedded: TranslationModel, store: Store, tmp_path: Path) -> None:
    """PyTorch's helpers of a second thread that stays would slow the first down."""
    seen: list[threading.Thread] = []

    def look(*_: Any) -> None:
        seen.append(threading.current_thread())

    handle = embedded.network.get_encoder().register_forward_pre_hook(look)
    try:
        with serving(embedded, [("house", copied(store, tmp_path / "house"))]) as client:
            asked = {"texts": ["Reinigen Sie die Kette mit einem Tuch."]}
            taught = {"text": "Die Kette ist neu.", "correction": "The chain is new."}
            assert client.post("/v1/translations", json=asked).status_code == 200
            assert client.post("/v1/corrections", json=taught).status_code == 200
            assert client.post("/v1/translations", json=asked).status_code == 200
            files = {"file": ("pairs.tsv", b"Das Rad ist rund.\tThe wheel is round.\n")}
            assert client.post("/v1/memories/house/import", files=files).status_code == 200
            assert len({thread for thread in seen if thread.is_alive()}) == 1
    finally:
        handle.remove()
    assert len(set(seen)) == 2  # the import had one that ended
