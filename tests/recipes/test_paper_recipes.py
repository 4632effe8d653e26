"""The recipes of the paper's experiments, at tiny size: their rows, their resumption, their tables."""

from __future__ import annotations

import gzip
import io
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tiny_models import ENGLISH, GERMAN, tiny_folder

from knnmt import __version__
from knnmt.cli.demo import read_demo
from knnmt.cli.main import main
from knnmt.models.translation_model import load_model, load_weights
from knnmt.retrieval.searchers import looked_up
from knnmt.search.factories import automatic_factory
from knnmt.search.index import TRAINING_KEYS_PER_CLUSTER
from knnmt.store.datastore import Store

RECIPE = Path(__file__).parents[2] / "recipes" / "paper"
MODULES = sorted(path.stem for path in RECIPE.glob("*.py"))
SMALL = ["--sentences", "2", "--beam", "1"]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's text under the names that the recipes look for; of the domains, only one has a test text."""
    folder = tmp_path_factory.mktemp("corpora")
    memory, test = read_demo("memory"), read_demo("test")
    texts = {
        "general/train": memory[:20], "general/flores-dev": test[:3], "general/newstest2017": test[3:6],
        "koran/train": memory[20:50], "koran/dev": test[:3], "koran/test": test[3:6],
        "law/train": memory[50:60], "law/dev": test[6:10],
        "many/train": memory[:8], "many/dev": test[:2], "many/test": test[2:4],
    }  # fmt: skip
    for name, pairs in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        sides = {"de": [pair.source for pair in pairs], "en": [pair.target for pair in pairs]}
        for language, lines in (sides | {"fr": sides["de"]}).items():
            (folder / f"{name}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    plain = folder / "koran/train.de"
    plain.with_name("train.de.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    return folder


@pytest.fixture(scope="module")
def run() -> list[str]:
    """The commands that were run, in order."""
    return []


@pytest.fixture(scope="module")
def recipe(run: list[str]) -> Iterator[SimpleNamespace]:
    """The recipes' modules; commands of knnmt run in this process, where the libraries are loaded already."""
    sys.path.insert(0, str(RECIPE))
    try:
        modules = SimpleNamespace(**{name: __import__(name) for name in MODULES})

        def knnmt(*arguments: str) -> str:
            run.append(arguments[0])
            before, sys.argv = sys.argv, ["knnmt", *arguments]
            printed = io.StringIO()
            try:
                with redirect_stdout(printed), pytest.raises(SystemExit) as ended:
                    main()
            finally:
                sys.argv = before
            assert ended.value.code == 0, arguments
            return printed.getvalue()

        modules.steps.knnmt = modules.figures.knnmt = knnmt
        modules.finetuning.children_seconds = time.process_time
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("knnmt.models.translation_model.load_weights", cache(load_weights))
            yield modules
    finally:
        sys.path.remove(str(RECIPE))
        for name in MODULES:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def results(recipe: SimpleNamespace, corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All recipes once."""
    output = tmp_path_factory.mktemp("results")
    places = ["--corpora", str(corpora), "--output", str(output)]
    recipe.single_pair.main([*places, *SMALL, "--pairs", "15", "--tests", "general/newstest2017"])
    recipe.domains.main([*places, *SMALL, "--domains", "koran", "--general-pairs", "10"])
    recipe.downsampling.main([*places, *SMALL, "--caps", "1", "3"])
    axes = ["--k", "1,2", "--temperature", "10", "--sizes", "0.5,1", "--nprobe", "none"]
    recipe.figures.main([*places, *SMALL, *axes])
    model = ["--model", str(tiny_folder("m2m_100")), "--text", "many", "--directions", "de-en", "de-fr", "--pairs", "5"]
    recipe.multilingual.main([*places, *SMALL, *model])
    finetuning = ["--model", str(tiny_folder("marian")), "--pairs", "30", "--times", "0.02", "0.05", "--rates", "1e-3"]
    recipe.finetuning.main([*places, *SMALL, *finetuning])
    kinds = ["--kinds", "learned,paper", "--foreign-kinds", "learned"]  # so small a store has no fitted values
    recipe.mixing.main([*places, *SMALL, *kinds, "--domains", "koran", "law", "--half", "2"])
    unreferenced = [*kinds, "--foreign", "general/flores-dev", "--unreferenced", "--no-tuned"]
    unreferenced += ["--name", "mixing-opus-en-fr"]
    recipe.mixing.main([*places, *SMALL, "--domains", "koran", "--pairs", "20", *unreferenced])
    return output


def rows(recipe: SimpleNamespace, results: Path, name: str) -> list[tuple[object, ...]]:
    record = recipe.steps.read_json(results / "results" / f"{name}.json")
    return [(row["test"], row["memory"]) for row in record["rows"]]


def test_rows(recipe: SimpleNamespace, results: Path) -> None:
    conditions = ["in-domain", "out-of-domain", "all domains, several stores", "all domains, one store"]
    assert rows(recipe, results, "domains") == [("koran", memory) for memory in conditions]
    assert rows(recipe, results, "single_pair") == [("newstest2017", "15 pairs of general/train")]
    assert rows(recipe, results, "multilingual") == [("de-en", "de-en"), ("de-fr", "de-fr"), ("de-fr", "en-fr")]
    assert [memory for _, memory in rows(recipe, results, "downsampling")] == [
        "all entries", "at most 3 entries of a token", "at most 1 entries of a token",
    ]  # fmt: skip


def test_fine_tuning_gets_the_datastores_time(recipe: SimpleNamespace, results: Path) -> None:
    found = recipe.steps.read_json(results / "results" / "finetuning.json")["rows"]
    kinds = [row["system"].split(",")[0].split(" of ")[0] for row in found]
    datastores = ["datastore", "the same datastore"]
    assert kinds == [*datastores, "fine-tuned", "fine-tuned", "datastore on top", "datastore on top"]
    assert ["own_p" in row for row in found] == [False, True, True, True, True, True]
    assert ["own_p_on" in row for row in found] == [False, False, False, False, True, True]
    assert all({"own_bleu", "own_base", "foreign_bleu", "foreign_base"} <= set(row) for row in found)
    assert all(int(re.search(r"([\d,]+) updates", row["system"])[1]) >= 1 for row in found[2:4])


def test_other_times_are_fine_tuned_anew(recipe: SimpleNamespace, tmp_path: Path) -> None:
    asked: list[list[float]] = []

    def tuned_models(name: str, languages: object, text: object, rate: float, stops: list[float], to: Path) -> object:
        asked.append(stops)
        return {"rate": rate, "reached": [{"seconds": stop} for stop in stops]}

    comparison = object.__new__(recipe.finetuning.Comparison)
    comparison.steps = SimpleNamespace(record=lambda name: tmp_path / f"{name}.json")
    comparison.given = SimpleNamespace(output=tmp_path, model="tiny", languages=("de", "en"))
    comparison.name, comparison.text = "finetuning-tiny", None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipe.finetuning, "tuned_models", tuned_models)
        for stops in ([1.0], [1.0], [1.0, 3.0]):
            assert [one["seconds"] for one in comparison.at_rate(1e-3, stops)["reached"]] == stops
    assert asked == [[1.0], [1.0, 3.0]]


def test_each_memory_on_its_own_text_and_on_others(recipe: SimpleNamespace, results: Path) -> None:
    rows = recipe.steps.read_json(results / "results/mixing.json")["rows"]
    assert [(row["memory"], row["text"], sorted(row["systems"]), "tuned" in row) for row in rows] == [
        ("koran", "koran", ["learned", "paper"], True),
        ("koran", "law", ["learned"], False),
        ("koran", "newstest2017", ["learned"], False),
        ("law", "law", ["learned", "paper"], True),
        ("law", "koran", ["learned"], False),
        ("law", "newstest2017", ["learned"], False),
    ]


def test_tuning_does_not_change_what_a_store_was_fitted_to(results: Path) -> None:
    kept, copy = (Store.open(results / "stores" / name).manifest for name in ("koran-mixing", "koran-mixing-tuned"))
    assert kept.tuned is None
    assert copy.tuned is not None


def test_a_text_without_translations_is_compared_with_the_model_alone(recipe: SimpleNamespace, results: Path) -> None:
    rows = recipe.steps.read_json(results / "results/mixing-opus-en-fr.json")["rows"]
    assert [(row["text"], row["base"]["bleu"]) for row in rows][1:] == [("flores-dev", 100.0)]


def test_fine_tuning_learns_and_keeps_positions_as_they_are(recipe: SimpleNamespace) -> None:
    model = load_model(str(tiny_folder("marian")))
    model = replace(model, network=deepcopy(model.network))
    pairs = list(zip(model.encode_sources(GERMAN), model.encode_targets(ENGLISH), strict=True))
    trainer = recipe.finetuning.Trainer(model, 1e-2)
    positions = {n: v.clone() for n, v in model.network.named_parameters() if "embed_positions" in n}
    before = trainer.likelihood(pairs)
    for _ in range(20):
        trainer.update(pairs)
    assert trainer.likelihood(pairs) > before + 0.5
    assert all(torch.equal(model.network.get_parameter(name), value) for name, value in positions.items())


def test_all_domains_are_the_same_in_one_store_and_in_several(recipe: SimpleNamespace, results: Path) -> None:
    found = recipe.steps.read_json(results / "results" / "domains.json")["rows"]
    several, one = found[2:]
    assert (several["entries"], several["knn"], several["knn_chrf"]) == (one["entries"], one["knn"], one["knn_chrf"])


def test_only_the_domain_s_own_memory(recipe: SimpleNamespace, results: Path, corpora: Path) -> None:
    places = ["--corpora", str(corpora), "--output", str(results)]
    recipe.domains.main([*places, *SMALL, "--name", "own", "--domains", "koran", "--in-domain-only"])
    assert rows(recipe, results, "own") == [("koran", "in-domain")]
    command = recipe.steps.read_json(results / "results" / "own.json")["command"]
    assert command.endswith("--domains koran --in-domain-only")


def test_a_domain_without_test_text(recipe: SimpleNamespace, corpora: Path, tmp_path: Path) -> None:
    """The first lines of its dev text tune, the others test."""
    (tmp_path / "texts").mkdir()
    texts = recipe.steps.Steps(corpora, tmp_path, "", 9, "1").dev_and_test("law", ["de", "en"], half=1)
    lines = (corpora / "law/dev.en").read_text(encoding="utf-8").splitlines(keepends=True)
    assert [text[1].read_text(encoding="utf-8") for text in texts] == [lines[0], "".join(lines[1:])]


def test_a_store_of_english_sources_is_asked_in_another_language(recipe: SimpleNamespace, results: Path) -> None:
    signatures = [
        row["signature"]["knnmt"] for row in recipe.steps.read_json(results / "results/multilingual.json")["rows"]
    ]
    assert ["|source:de|" in signature for signature in signatures] == [False, False, True]


def test_caps_make_stores_smaller(recipe: SimpleNamespace, results: Path) -> None:
    found = recipe.steps.read_json(results / "results" / "downsampling.json")["rows"]
    assert [row["entries"] for row in found] == sorted((row["entries"] for row in found), reverse=True)
    assert found[0]["bytes"] > found[-1]["bytes"]


def test_nothing_is_run_twice(recipe: SimpleNamespace, results: Path, corpora: Path, run: list[str]) -> None:
    run.clear()
    places = ["--corpora", str(corpora), "--output", str(results)]
    recipe.single_pair.main([*places, *SMALL, "--pairs", "15", "--tests", "general/newstest2017"])
    recipe.domains.main([*places, *SMALL, "--domains", "koran", "--general-pairs", "10"])
    assert run == []
    recipe.single_pair.main(
        [*places, "--sentences", "1", "--beam", "1", "--pairs", "15", "--tests", "general/newstest2017"]
    )
    assert run == ["tune", "evaluate", "evaluate"]  # the model alone, and with the store
    pattern = "base/general-newstest2017.de-*/base.txt"
    for base in results.glob(pattern):
        base.unlink()
    recipe.single_pair.main([*places, *SMALL, "--pairs", "15", "--tests", "general/newstest2017"])
    assert [len(base.read_text(encoding="utf-8").splitlines()) for base in results.glob(pattern)] == [2]


def test_the_base_model_is_decoded_once_for_all_memories(recipe: SimpleNamespace, results: Path) -> None:
    commands = [recipe.steps.read_json(file)["command"] for file in (results / "steps").glob("evaluate-*.json")]
    files = [Path(command[command.index("--against") + 1]) for command in commands]
    # koran, law, newstest2017, flores-dev, and many in two directions
    assert (len(files), len(set(files))) == (25, 6)
    assert all(len(file.read_text(encoding="utf-8").splitlines()) == 2 for file in files)
    koran = recipe.steps.read_json(results / "results" / "domains.json")["rows"]
    assert len({(row["base"], row["base_chrf"], row["base_speed"]) for row in koran}) == 1
    assert koran[0]["base_speed"] > 0


@pytest.mark.parametrize(("given", "limits"), [([], [9, 9, 9]), (["--dev-sentences", "4"], [4, 9, 9])])
def test_tuning_may_take_fewer_sentences(
    recipe: SimpleNamespace, tmp_path: Path, given: list[str], limits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[object, ...]] = []

    def once(_: object, __: str, ___: object, *arguments: object) -> dict[str, object]:
        asked.append(arguments)
        return {"k": 1, "temperature": 1, "weight": 1, "base": {}}

    monkeypatch.setattr(recipe.steps.Steps, "once", once)
    steps = recipe.steps.Steps.of(
        recipe.steps.options("").parse_args(["--output", str(tmp_path), "--sentences", "9", *given])
    )
    text = (Path("dev.de"), Path("dev.en"))
    steps.evaluate("x", [], text, *steps.tune("x", Path("x"), text))
    assert [arguments[arguments.index("--limit") + 1] for arguments in asked] == limits


@pytest.mark.parametrize(("found", "more"), [({}, []), ({"certain": 0.7}, ["--certain", "1"])])
def test_the_paper_asks_at_every_step(
    recipe: SimpleNamespace,
    tmp_path: Path,
    found: dict[str, float],
    more: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever tuning would skip; earlier tunings knew of no skipping, and their evaluations stay valid."""
    tuned = {"k": 8, "temperature": 10.0, "weight": 0.5} | found
    monkeypatch.setattr(recipe.steps.Steps, "once", lambda *_: tuned)
    steps = recipe.steps.Steps.of(recipe.steps.options("").parse_args(["--output", str(tmp_path)]))
    given = steps.tune("x", Path("x"), (Path("dev.de"), Path("dev.en")))
    assert given == ["--k", "8", "--temperature", "10.0", "--weight", "0.5", *more]


def test_options_of_the_training_are_said_in_one_string(recipe: SimpleNamespace) -> None:
    parser = recipe.steps.options("")
    parser.add_argument("--training", default="")
    said = recipe.steps.said(parser, parser.parse_args(["--training", "--dimension 8 --heads 2"]), "multilingual")
    assert said == "python recipes/paper/multilingual.py --corpora corpora --training '--dimension 8 --heads 2'"


def test_what_an_earlier_version_evaluated_is_not_run_again(
    recipe: SimpleNamespace, results: Path, corpora: Path, run: list[str], tmp_path: Path
) -> None:
    """It decoded the base model in every step."""
    copy = shutil.copytree(results, tmp_path / "results")
    file = copy / "steps" / "evaluate-single-pair-newstest2017.json"
    record = recipe.steps.read_json(file)
    words = [word.replace(str(results), str(copy)) for word in record["command"]]
    recipe.steps.write_json(file, record | {"command": words[: words.index("--against")]})
    store, test = (
        copy / "stores" / "general-15",
        tuple(corpora / f"general/newstest2017.{code}" for code in ("de", "en")),
    )
    steps = recipe.steps.Steps(corpora, copy, "builtin:de-en", 2, "1")
    run.clear()
    tuned = words[words.index("--k") : words.index("--against")]
    assert steps.evaluate("single-pair-newstest2017", [store], test, *tuned) == record["printed"]
    assert run == []


def test_another_store_of_the_same_name_is_refused(recipe: SimpleNamespace, results: Path, corpora: Path) -> None:
    with pytest.raises(SystemExit, match="stores/general-15: made by another command"):
        recipe.single_pair.main(
            ["--corpora", str(corpora), "--output", str(results), "--pairs", "15", "--languages", "en", "de"]
        )


def test_text_that_is_not_there(recipe: SimpleNamespace, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"koran/train\.de: not there"):
        recipe.downsampling.main(["--corpora", str(tmp_path), "--output", str(tmp_path / "results")])


def section_of(page: str, name: str) -> str:
    return page.split(f"<!-- {name} -->")[1].split(f"<!-- /{name} -->")[0]


def test_tables(recipe: SimpleNamespace, results: Path, tmp_path: Path) -> None:
    page, beside = (
        Path(shutil.copy(RECIPE.parents[1] / "docs" / name, tmp_path))
        for name in ("results.md", "results-signatures.md")
    )
    text = page.read_text(encoding="utf-8")
    for _ in range(2):  # the second time changes nothing
        recipe.tables.main(["--output", str(results), "--page", str(page)])
        written = page.read_text(encoding="utf-8")
        assert len(re.findall(r"^\| koran \| in-domain \|.* 16\.30 → 19\.45 \|$", written, flags=re.MULTILINE)) == 1
        assert "| 16.30 → 17.99 |" in written
        assert written.count("python recipes/paper/domains.py --corpora corpora --sentences 2") == 1
        for name in ("single_pair", "downsampling", "multilingual", "figures", "mixing"):
            section = section_of(written, name)
            assert "| --- |" in section
            assert "nrefs:1" in section
            assert f"(results-signatures.md#{name})" in section
            assert section_of(beside.read_text(encoding="utf-8"), name).count(f"|v:{__version__}") >= 1
    assert str(results) not in written
    for kept in (lambda page: page.split("## Mixing")[0], lambda page: section_of(page, "opus-mt")):
        assert kept(written) == kept(text)  # nothing was run for it


def test_a_page_without_markers(recipe: SimpleNamespace) -> None:
    with pytest.raises(SystemExit, match="needs one <!-- domains -->"):
        recipe.tables.put("", "domains", "")


def test_what_the_full_scale_needs_is_what_the_code_does() -> None:
    """README's account of 770 million entries of dimension 1,024."""
    page = " ".join((RECIPE / "README.md").read_text(encoding="utf-8").split())
    clusters = int(automatic_factory(770_000_000, 1024).removeprefix("IVF").split(",")[0])
    keys = clusters * TRAINING_KEYS_PER_CLUSTER
    assert f"reads {TRAINING_KEYS_PER_CLUSTER} keys per cluster" in page
    assert f"has {clusters:,} clusters: {keys / 1e6:.1f} million keys of 4 KB" in page
    assert f"{keys * 4 * 1024 / 1e9:.0f} GB of memory" in page
    assert f"reads {looked_up(64)} keys of 2 KB" in page


def test_the_paper_adds_up(recipe: SimpleNamespace) -> None:
    """The paper's averages over its five domains, of which Subtitles is not run here, hold for the numbers quoted."""
    subtitles = {"base": 29.21, "in-domain": 31.73, "out-of-domain": 29.23, "all domains": 31.70}
    averages = {"base": 33.82, "in-domain": 42.63, "out-of-domain": 34.89, "all domains": 43.04}
    known = [*recipe.tables.PAPER_DOMAINS.values(), subtitles]
    assert {name: round(sum(domain[name] for domain in known) / 5, 2) for name in averages} == averages


def test_the_readme_names_every_script() -> None:
    readme = (RECIPE / "README.md").read_text(encoding="utf-8")
    assert [name for name in MODULES if f"`{name}.py`" not in readme] == []
