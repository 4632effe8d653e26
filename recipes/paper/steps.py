"""What the recipes have in common: finding text, and running commands of knnmt, each of them once.

Whatever a command printed is kept in OUTPUT/steps. The same command on the same stores is not run again, so that a
recipe that was stopped goes on where it was. What the model alone makes of a test text is kept in OUTPUT/base: every
memory is compared with it.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

Text = tuple[Path, Path]  # source and target
HALF = 1000  # lines of a dev text to tune on, where the rest must serve as test
Json = dict[str, Any]


def knnmt(*arguments: str) -> str:
    """Run one public command; what it prints."""
    print("knnmt", *arguments, file=sys.stderr, flush=True)
    done = subprocess.run([sys.executable, "-m", "knnmt", *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


def options(description: str | None, **defaults: Any) -> argparse.ArgumentParser:
    """A parser with the options of every recipe."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--corpora", type=Path, default=Path("corpora"), help="the folder of parallel text")
    parser.add_argument("--output", type=Path, default=Path("results"), help="gets stores/, steps/, base/ and results/")
    parser.add_argument("--model", help="as for knnmt build")
    parser.add_argument("--sentences", type=int, help="of each dev and test text at most")
    parser.add_argument("--dev-sentences", type=int, help="of each dev text at most, to tune on; default: --sentences")
    parser.add_argument("--beam")
    parser.set_defaults(**{"model": "builtin:de-en", "sentences": 2000, "beam": "5"} | defaults)
    return parser


@dataclass(frozen=True)
class Steps:
    """The steps of one recipe."""

    corpora: Path
    output: Path
    model: str
    sentences: int
    beam: str
    dev_sentences: int | None = None  # None: as many as of a test text

    @classmethod
    def of(cls, given: argparse.Namespace) -> Steps:
        for folder in ("stores", "steps", "results", "texts"):
            (given.output / folder).mkdir(parents=True, exist_ok=True)
        return cls(given.corpora, given.output, given.model, given.sentences, given.beam, given.dev_sentences)

    def text(self, name: str, languages: Sequence[str]) -> Text:
        """`koran/train` in both languages, plain or gzipped."""
        return cast(Text, tuple(find(self.corpora / name, language) for language in languages))

    def dev_and_test(self, domain: str, languages: Sequence[str], *, half: int = HALF) -> tuple[Text, Text]:
        """A domain's texts; without a test text, the two parts of its dev text."""
        dev = self.text(f"{domain}/dev", languages)
        if has_test(self.corpora / domain, languages[0]):
            return dev, self.text(f"{domain}/test", languages)
        folder = self.output / "texts"
        return cut(dev, folder, f"{domain}-dev-{half}", 0, half), cut(dev, folder, f"{domain}-test-{half}", half, None)

    def build(self, name: str, texts: Iterable[Text], *more: object) -> Path:
        """A store in OUTPUT/stores; an unfinished one is gone on with."""
        store, record = self.output / "stores" / name, self.record(f"build-{name}")
        files = [word for text in texts for word in ("--source", text[0], "--target", text[1])]
        command = words("build", store, "--model", self.model, *files, *more)
        begun = record.is_file() and read_json(record)["command"] == command
        if store.exists() and not begun:
            sys.exit(f"{store}: made by another command; remove it or choose another --output")
        if not (store / "manifest.json").is_file() or (store / "building.json").is_file():
            write_json(record, {"command": command})
            knnmt(*command, "--resume")
        return store

    def join(self, name: str, stores: Sequence[Path]) -> Path:
        """One store with the content of several, without running the model again."""
        store = self.output / "stores" / name
        command = words("merge", store, *stores[1:])
        if not self.kept(f"join-{name}", stores, *command):
            shutil.rmtree(store, ignore_errors=True)
            shutil.copytree(stores[0], store)
            knnmt(*command)
            knnmt("compact", str(store))  # one index, trained on all of it
            write_json(
                self.record(f"join-{name}"), asked(stores, *command) | {"printed": {"entries": entries_of(store)}}
            )
        return store

    def tune(self, name: str, store: Path, dev: Text, *more: object) -> list[str]:
        """The options that serve this dev text best."""
        command = ("tune", store, *self.test_options(dev, self.dev_sentences), *more)
        tuned = fixed_values(self.once(f"tune-{name}", [store], *command))
        chosen = [word for key in ("k", "temperature", "weight") for word in (f"--{key}", tuned[key])]
        return words(*chosen, *(("--certain", 1) if "certain" in tuned else ()))  # the paper asks at every step

    def evaluate(
        self,
        name: str,
        stores: Sequence[Path],
        test: Text,
        *more: object,
        languages: Sequence[str] = (),
        against: Path | None = None,
    ) -> Json:
        """The base model and retrieval on a test text; a model of many languages must know which two they are.

        `against`: what the base model made of it, where that is known.
        """
        chosen = [word for store in stores for word in ("--store", store)]
        source = ("--source-lang", languages[0]) if languages else ()
        command = ("evaluate", *chosen, *self.test_options(test), *more, *source)
        before = self.kept(f"evaluate-{name}", stores, *command)
        if before:  # by a version of this recipe that decoded the base model each time
            return before
        if against:
            return self.once(f"evaluate-{name}", stores, *command, "--against", against)
        base, printed = self.base(test, languages)
        compared = self.once(f"evaluate-{name}", stores, *command, "--against", base)
        return compared | {"base": printed["base"]}  # the same scores, and the speed

    def base(self, test: Text, languages: Sequence[str]) -> tuple[Path, Json]:
        """What the model alone makes of a test text, decoded once for all memories: its file, and its scores."""
        named = [word for pair in zip(("--source-lang", "--target-lang"), languages, strict=False) for word in pair]
        command = ("evaluate", "--model", self.model, *self.test_options(test), *named)
        folder = self.output / "base" / f"{test[0].parent.name}-{test[0].name}-{digest(*command)}"
        if not (folder / "base.txt").is_file():
            self.record(f"base-{folder.name}").unlink(missing_ok=True)
        return folder / "base.txt", self.once(f"base-{folder.name}", [], *command, "--save", folder)

    def test_options(self, text: Text, sentences: int | None = None) -> list[object]:
        limit = self.sentences if sentences is None else sentences
        return ["--source", text[0], "--target", text[1], "--limit", limit, "--beam", self.beam, "--json"]

    def once(self, name: str, stores: Sequence[Path], *arguments: object) -> Json:
        """The JSON that a command prints, from its last run if command and stores are the same."""
        kept = self.kept(name, stores, *arguments)
        if kept:
            return kept
        printed = json.loads(knnmt(*words(*arguments)))
        write_json(self.record(name), asked(stores, *arguments) | {"printed": printed})
        return cast(Json, printed)

    def kept(self, name: str, stores: Sequence[Path], *arguments: object) -> Json | None:
        """What the very same command printed on the same stores, if it was the last of that name."""
        file = self.record(name)
        record = read_json(file) if file.is_file() else {}
        same = record | asked(stores, *arguments) == record
        return cast(Json, record["printed"]) if same else None

    def record(self, name: str) -> Path:
        return self.output / "steps" / f"{name}.json"

    def save(self, recipe: str, command: str, rows: list[Json]) -> None:
        """The results, for tables.py."""
        file = self.output / "results" / f"{recipe}.json"
        write_json(file, {"recipe": recipe, "command": command, "rows": rows})
        print(file)


def fixed_values(tuned: Json) -> Json:
    """The paper's method has fixed values; where the learned head was chosen, the best fixed ones that were decoded."""
    if "k" in tuned:
        return tuned
    return cast(Json, next(one for one in tuned["how"]["candidates"] if "k" in one))


def asked(stores: Sequence[Path], *arguments: object) -> Json:
    """What the outcome of a command depends on."""
    return {"command": words(*arguments), "made": [made(store) for store in stores]}


def digest(*arguments: object) -> str:
    return hashlib.sha256("\n".join(words(*arguments)).encode()).hexdigest()[:8]


def words(*arguments: object) -> list[str]:
    return [str(argument) for argument in arguments]


def find(stem: Path, language: str) -> Path:
    """`koran/train` + `de`: train.de or train.de.gz."""
    plain = stem.with_name(f"{stem.name}.{language}")
    zipped = plain.with_name(f"{plain.name}.gz")
    found = next((path for path in (plain, zipped) if path.is_file()), None)
    if found is None:
        sys.exit(f"{plain}: not there, and not as .gz; --corpora names the folder of parallel text")
    return found


def has_test(folder: Path, language: str) -> bool:
    return any((folder / f"test.{language}{ending}").is_file() for ending in ("", ".gz"))


def made(store: Path) -> str:
    """When a store was made."""
    return str(read_json(store / "manifest.json")["created"])


def entries_of(store: Path) -> int:
    return int(read_json(store / "manifest.json")["entries"])


def facts(store: Path) -> Json:
    """What `knnmt info` says of a store."""
    return cast(Json, json.loads(knnmt("info", str(store), "--json")))


def read_lines(path: Path) -> Iterable[str]:
    unpack = gzip.open if path.suffix == ".gz" else Path.open
    with unpack(path, "rt", encoding="utf-8", newline="\n") as lines:
        yield from lines


def cut(text: Text, folder: Path, name: str, start: int, stop: int | None) -> Text:
    """Some lines of a text as files of their own, made once."""
    parts = []
    for path in text:
        language = path.name.removesuffix(".gz").rsplit(".", 1)[1]
        part = folder / f"{name}.{language}"
        if not part.is_file():
            temporary = part.with_name(f".{part.name}.partial")
            temporary.write_text("".join(islice(read_lines(path), start, stop)), encoding="utf-8")
            temporary.replace(part)
        parts.append(part)
    return cast(Text, tuple(parts))


def row(evaluation: Json, **about: Any) -> Json:
    """One line of a table out of what `knnmt evaluate` printed."""
    base, knn = evaluation["base"], evaluation["knn"]
    return about | {
        "base": base["bleu"], "knn": knn["bleu"], "p": evaluation["p_value"], "sentences": evaluation["sentences"],
        "base_chrf": base["chrf"], "knn_chrf": knn["chrf"], "base_speed": base["tokens_per_second"],
        "knn_speed": knn["tokens_per_second"], "signature": evaluation["signature"],
    }  # fmt: skip


def said(parser: argparse.ArgumentParser, given: argparse.Namespace, script: str) -> str:
    """The command without what differs between machines, to be printed beside its results."""
    shown = [f"python recipes/paper/{script}.py --corpora corpora"]
    for name, value in vars(given).items():
        if name not in ("corpora", "output") and value != parser.get_default(name) and value is not None:
            text = " ".join(map(str, value)) if isinstance(value, list) else "" if value is True else str(value)
            text = shlex.quote(text) if name == "training" else text
            shown.append(f"--{name.replace('_', '-')} {Path(text).name if name == 'model' else text}".strip())
    return " ".join(shown)


def read_json(path: Path) -> Json:
    return cast(Json, json.loads(path.read_text(encoding="utf-8")))


def write_json(path: Path, content: object) -> None:
    temporary = path.with_name(f".{path.name}.partial")
    temporary.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)
