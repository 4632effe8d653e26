"""The page in a real browser: translate, why, correct, undo, memory, documents, settings; readable by everyone."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import browser as chromium
import pytest
from serving import copied, listening

from knnmt import Store
from knnmt.cli.demo import demo_corpus
from knnmt.models.translation_model import TranslationModel
from knnmt.serve.running import Running
from knnmt.store.building import BuildSettings, build_store

pytestmark = pytest.mark.skipif(bool(chromium.missing()), reason=chromium.missing() or "a browser is here")

WIDE, NARROW = {"width": 1200, "height": 800}, {"width": 390, "height": 844}
TEXT = "Prüfen Sie die Kette auf Verschleiß."
PICTURES = os.environ.get("KNNMT_PICTURES")  # a folder: pictures for the documents are made by this run


@pytest.fixture(scope="module")
def server(embedded: TranslationModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("page")
    build_store(folder / "house", embedded, [demo_corpus("memory")], BuildSettings())
    with listening(embedded, [("house", folder / "house")], folder / "state") as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium.browsing() as made:
        yield made


@pytest.fixture
def page(server: Running, browser: Any) -> Iterator[Any]:
    """The page, ready; at the end it must have said nothing on the console and asked nobody else."""
    context = browser.new_context(viewport=WIDE)
    page, said, asked = context.new_page(), [], []
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.set_default_timeout(20_000)
    opened(page, server)
    yield page
    context.close()
    assert said == []
    own = urlsplit(server.address).netloc
    assert {urlsplit(url).netloc for url in asked if not url.startswith(("blob:", "data:"))} == {own}


def opened(page: Any, server: Running) -> None:
    page.goto(server.address)
    page.get_by_text("Ready.").wait_for()


def picture(page: Any, name: str) -> None:
    if PICTURES:
        page.screenshot(path=f"{PICTURES}/{name}.png")


def write(page: Any, text: str) -> None:
    """Write a text and wait for its translation."""
    with page.expect_response("**/v1/translations"):
        page.get_by_label("Text to translate").fill(text)
    page.locator("#translation:not(.busy)").wait_for()


def translation(page: Any) -> str:
    return str(page.locator("#translation .line > div").first.inner_text())


def test_words_are_shaded_and_say_why(page: Any) -> None:
    write(page, TEXT)
    words = page.locator("#translation button.word")
    assert "Check" in translation(page)
    assert "from the memory" in page.locator("#summary").inner_text()
    words.nth(0).click()
    why = page.locator("#why")
    assert "from the memory" in why.locator("h2").inner_text()
    assert why.locator("mark").count() >= 1
    first = why.locator("li").first.inner_text()
    assert "house / memory" in first
    assert "tuid: mem-" in first
    picture(page, "page-translate")
    page.keyboard.press("Escape")
    assert not why.is_visible()


def test_words_are_reached_by_the_keyboard(page: Any) -> None:
    write(page, TEXT)
    page.locator("#target-language").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    second = page.locator("#translation button.word").nth(1)
    assert second.get_attribute("aria-expanded") == "true"
    page.locator("#tab-translate").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#memory").is_visible()


def test_a_correction_is_learned_and_undone(page: Any) -> None:
    write(page, "Ölen Sie die Kette jeden Sonntag.")
    before = translation(page)
    page.get_by_role("button", name="Correct").click()
    page.locator("textarea.edit").fill("Oil the chain every Sunday, please.")
    page.get_by_role("button", name="Learn").click()
    page.get_by_text("Learned into house").wait_for()
    assert translation(page) == "Oil the chain every Sunday, please."
    assert "known sentence" in page.locator("#summary").inner_text()
    picture(page, "page-correct")
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("Undone.").wait_for()
    assert translation(page) == before


def test_two_lines_are_two_translations(page: Any) -> None:
    write(page, f"{TEXT}\n\nDas Rad läuft rund.")
    lines = page.locator("#translation .line")
    assert lines.count() == 3
    assert lines.nth(1).inner_text().strip() == ""


def test_the_memory_is_searched_and_a_pair_deleted_and_brought_back(page: Any) -> None:
    page.get_by_role("tab", name="Memory").click()
    page.get_by_label("Search").fill("speichen")
    page.get_by_role("button", name="Search").click()
    items = page.locator("#segments li")
    items.first.locator("mark").first.wait_for()
    source = items.first.locator(".texts span").first.inner_text()
    versions = page.locator("#history li").count()
    items.first.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    page.get_by_text("Deleted", exact=True).wait_for()
    page.locator("#history li").nth(versions).wait_for()
    page.get_by_role("button", name="Go back to version").first.click()
    page.get_by_role("dialog").get_by_role("button", name="Go back").click()
    page.locator(f"#segments li:has-text('{source}')").wait_for()


def test_a_pair_is_added_and_edited(page: Any) -> None:
    write(page, "Das Fahrradschloss klemmt.")
    page.get_by_role("tab", name="Memory").click()
    page.get_by_text("Add a pair").click()
    page.get_by_label("Source").fill("Das Fahrradschloss klemmt.")
    page.locator("#add-target").fill("The bike lock is stuck.")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_text("Added. The next translation uses it.").wait_for()
    page.get_by_role("button", name="Edit: Das Fahrradschloss klemmt.").click()
    page.get_by_label("Translation of: Das Fahrradschloss klemmt.").fill("The bicycle lock jams.")
    with page.expect_response("**/v1/translations"):
        page.get_by_role("button", name="Save").click()
    page.get_by_text("Saved. The next translation uses it.").wait_for()
    page.get_by_role("tab", name="Translate").click()
    page.locator("#summary", has_text="known sentence").wait_for()
    assert translation(page) == "The bicycle lock jams."


def test_a_document_is_translated(page: Any, tmp_path: Path) -> None:
    file = tmp_path / "manual.txt"
    lines = [TEXT, "", "Sie haben {n, plural, one {# Rad} other {# Räder}}.", ""]
    file.write_text("\n".join(lines), encoding="utf-8")
    page.get_by_role("tab", name="Documents").click()
    page.locator("#document").set_input_files(file)
    item = page.locator("#jobs li", has_text="manual.txt")
    with page.expect_download() as got:
        item.get_by_role("button", name="Download").click()
    assert got.value.suggested_filename == "manual.en.txt"
    got.value.save_as(tmp_path / "done.txt")
    assert (tmp_path / "done.txt").read_text(encoding="utf-8").count("\n") == 3
    item.get_by_role("button", name="Report").click()
    item.get_by_text("To look at, the least certain first").wait_for()
    assert "text inside a placeholder" in item.locator(".pair").first.inner_text()
    picture(page, "page-documents")
    item.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    item.wait_for(state="detached")


def test_the_language_that_was_found_may_be_doubtful(page: Any) -> None:
    write(page, TEXT)
    assert page.locator("#detected").inner_text() == "German"
    write(page, "This is an English text that nobody wrote in German.")
    assert page.locator("#detected").inner_text() == "Taken for German"


def test_export_and_import(page: Any, tmp_path: Path) -> None:
    page.get_by_role("tab", name="Memory").click()
    page.get_by_text("Import and export").click()
    with page.expect_download() as got:
        page.get_by_role("button", name="Export").click()
    got.value.save_as(tmp_path / "house.tmx")
    page.locator("#import-file").set_input_files(tmp_path / "house.tmx")
    page.get_by_role("button", name="Import").click()
    page.get_by_text("0 pairs added").wait_for()


def test_the_weight_is_live(page: Any) -> None:
    write(page, TEXT)
    page.get_by_role("tab", name="Settings").click()
    with page.expect_response("**/v1/translations") as answered:
        page.get_by_label("Weight", exact=True).fill("0")
    assert answered.value.request.post_data_json["settings"] == {"weight": 0}
    page.get_by_role("tab", name="Translate").click()
    page.get_by_text("0 % from the memory").wait_for()
    page.get_by_role("tab", name="Settings").click()
    assert "too small for a weight of its own" in page.locator("#weight-about").inner_text()  # none was fitted
    page.get_by_role("button", name="Use the fitted value").click()
    with page.expect_response("**/v1/translations"):
        page.get_by_label("house").uncheck()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_axe_finds_nothing(server: Running, browser: Any, scheme: str, size: dict[str, int]) -> None:
    from axe_playwright_python.sync_playwright import Axe

    context = browser.new_context(viewport=size, color_scheme=scheme, bypass_csp=True)  # axe itself is evaluated
    page = context.new_page()
    opened(page, server)
    assert page.locator("#hint").evaluate("hint => hint.scrollHeight <= hint.clientHeight"), "it runs out of its pane"
    write(page, TEXT)
    page.locator("#translation button.word").first.click()
    for name in ("Translate", "Memory", "Documents", "Settings"):
        page.get_by_role("tab", name=name).click()
        if name == "Memory":
            page.locator("#segments li").first.wait_for()
            page.locator("summary", has_text="Import").click()
        found = Axe().run(page)
        assert found.violations_count == 0, f"{name}: {found.generate_report()}"
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= size["width"], f"{name}: {wide} px wide"
        if scheme == "dark" and size is NARROW:
            picture(page, f"page-narrow-{name.lower()}")
    page.goto(f"{server.address}/docs")
    page.locator("details").first.wait_for()
    assert Axe().run(page).violations_count == 0
    context.close()


def test_a_key_is_asked_for(embedded: TranslationModel, store: Store, browser: Any, tmp_path: Path) -> None:
    from knnmt.service.access import Access, add_api_key

    key = add_api_key(tmp_path / "keys.json", Access(name="reader"))
    path = copied(store, tmp_path / "house")
    with listening(embedded, [("house", path)], tmp_path / "state", api_keys=tmp_path / "keys.json") as running:
        page = browser.new_context().new_page()
        page.goto(running.address)
        page.get_by_label("API key").fill("wrong")
        page.get_by_role("button", name="Use key").click()
        page.get_by_text("Invalid API key").wait_for()
        page.get_by_label("API key").fill(key)
        page.get_by_role("button", name="Use key").click()
        page.get_by_text("Ready.").wait_for()
        write(page, TEXT)
        assert page.get_by_role("button", name="Correct").count() == 0  # this key may only translate
        page.get_by_role("tab", name="Memory").click()
        page.locator("#segments li").first.wait_for()
        assert page.get_by_role("button", name="Delete").count() == 0
        assert not page.get_by_text("Add a pair").is_visible()
        page.context.close()
