"""BLEU and speed over one setting at a time: k and temperature, datastore size, clusters searched, beams.

The other settings stay fixed, so the number of runs is the sum over the axes and not their product. Every result is a
row of a CSV file, written as soon as it is known. A row whose signature is already there is not run again.
"""

import csv
import hashlib
import io
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from knnmt.errors import SettingsError, StoreError
from knnmt.files import check_writable, write_durably
from knnmt.measure.evaluation import metrics, score_system, signature_of
from knnmt.measure.subsets import SEED, Nesting, Subset, check_trainable, make_subset
from knnmt.mixing.fixed import FixedMixer
from knnmt.progress import progress_bar
from knnmt.retrieval.local_retriever import LocalRetriever
from knnmt.translate.settings import TranslateSettings, check_enough
from knnmt.translate.translator import Translator

WARM_UP = 4  # sentences translated before the clock starts, because the first ones wait for the disk

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """The values of each setting: several values are compared, one value is fixed, none means the default."""

    k: tuple[int, ...] = ()
    temperature: tuple[float, ...] = ()
    sizes: tuple[float, ...] = ()  # shares of the datastore
    nprobe: tuple[int, ...] = ()
    beam: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for size in self.sizes:
            if not 0 < size <= 1:
                raise SettingsError(f"--sizes {size:g}: must be above 0 and at most 1, as a share of the datastore")
        for nprobe in self.nprobe:
            if nprobe < 1:
                raise SettingsError(f"--nprobe {nprobe}: must be at least 1")
        for name in ("k", "temperature", "beam"):
            for value in getattr(self, name):
                TranslateSettings(**{name: value})  # settings know their own limits
        if not any(len(getattr(self, axis.name)) > 1 for axis in fields(self)):
            raise SettingsError("nothing to sweep: give --k, --temperature, --sizes, --nprobe or --beam several values")

    @classmethod
    def parse(cls, **lists: str | None) -> "Axes":
        """Axes from the text of command-line options, such as `k="1,4,16"`."""
        kinds: dict[str, Any] = {"temperature": float, "sizes": float}
        return cls(
            **{name: parse_numbers(f"--{name}", text, kinds.get(name, int)) for name, text in lists.items() if text}
        )

    def fixed(self, name: str) -> Any:
        """The value, if exactly one was given; otherwise None."""
        values = getattr(self, name)
        return values[0] if len(values) == 1 else None

    def swept(self, name: str) -> tuple[Any, ...]:
        """The values to compare; empty unless there are several."""
        values = getattr(self, name)
        return values if len(values) > 1 else ()


def parse_numbers(flag: str, text: str, kind: type[Number]) -> tuple[Number, ...]:
    """`1,4,16` as numbers, each once, ascending."""
    try:
        return tuple(sorted({kind(part) for part in text.split(",")}))
    except ValueError as error:
        what = "whole numbers" if kind is int else "numbers"
        raise SettingsError(f"{flag} {text}: must be {what} separated by commas") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One setting of everything that can be swept."""

    settings: TranslateSettings
    size: float = 1.0
    nprobe: int | None = None  # None: the store's own

    @property
    def retrieves(self) -> bool:
        return self.settings.fixed.weight > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The result of one setting: one row of the CSV file. Fields about retrieval are None without it."""

    k: int | None
    temperature: float | None
    weight: float
    beam: int
    nprobe: int | None
    size: float | None  # share of the datastore's segments
    segments: int | None
    entries: int | None
    index: str | None
    bleu: float
    chrf: float
    tokens_per_second: float
    sentences: int
    bleu_signature: str
    signature: str


COLUMNS = tuple(column.name for column in fields(Row))
WHOLE = ("k", "beam", "nprobe", "segments", "entries", "sentences")
TEXT = ("index", "bleu_signature", "signature")


@dataclass(frozen=True, slots=True)
class Sweep:
    """All results of one call, with what they have in common."""

    base: Point
    axes: Axes
    results: dict[Point, Row] = field(default_factory=dict)

    def alone(self, beam: int) -> Row:
        """The model without retrieval."""
        return self.results[alone(self.base, beam)]


def base_point(translator: Translator, axes: Axes) -> Point:
    """The values of settings that are not swept."""
    fixed = translator.mixer if isinstance(translator.mixer, FixedMixer) else translator.settings.fixed
    settings = translator.settings.filled(asdict(fixed))
    return Point(settings=settings, size=axes.fixed("sizes") or 1.0, nprobe=axes.fixed("nprobe"))


def alone(base: Point, beam: int) -> Point:
    return Point(settings=replace(base.settings, weight=0.0, beam=beam))


def plan(base: Point, axes: Axes) -> list[Point]:
    """Every point to be run, each once: the model alone, the grid of k and temperature, then axis by axis."""
    beams = {base.settings.beam, *axes.swept("beam")}
    points = [alone(base, beam) for beam in sorted(beams)]
    for _, axis_points in lines(base, axes):
        points += axis_points
    return list(dict.fromkeys(points))


def lines(base: Point, axes: Axes) -> Iterator[tuple[str, list[Point]]]:
    """The lines of the plots: the axis, and the points along it."""
    ks, temperatures = axes.swept("k"), axes.swept("temperature")
    if ks:
        for temperature in temperatures or (base.settings.fixed.temperature,):
            yield "k", [point_with(base, k=k, temperature=temperature) for k in ks]
    elif temperatures:
        yield "temperature", [point_with(base, temperature=temperature) for temperature in temperatures]
    for axis, name in (("size", "sizes"), ("nprobe", "nprobe")):
        if values := axes.swept(name):
            yield axis, [replace(base, **{axis: value}) for value in values]
    if values := axes.swept("beam"):
        yield "beam", [point_with(base, beam=beam) for beam in values]


def point_with(base: Point, **settings: Any) -> Point:
    return replace(base, settings=replace(base.settings, **settings))


def sweep(
    translator: Translator,
    axes: Axes,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    output: Path,
    show_progress: bool = False,
) -> Sweep:
    """Run all settings that the file `output` does not contain yet, and write each result there at once."""
    table = Table(output)
    base = base_point(translator, axes)
    if not base.retrieves:
        raise SettingsError("--weight 0 retrieves nothing, so there is nothing to sweep; give another --weight")
    points = plan(base, axes)
    with tempfile.TemporaryDirectory(prefix=".knnmt-sweep-", dir=output.parent) as folder:
        study = Study(translator, sources, references, folder=Path(folder), show_progress=show_progress)
        study.check(points)
        found = Sweep(base, axes)
        for number, point in enumerate(points, start=1):
            signature = study.signature(point)
            if signature not in table.rows:
                table.add(study.run(point, signature, label=f"{number}/{len(points)}"))
            found.results[point] = table.rows[signature]
    return found


class Study:
    """Runs the points of one store on one text and caches what several points need."""

    def __init__(
        self,
        translator: Translator,
        sources: Sequence[str],
        references: Sequence[str],
        *,
        folder: Path,
        show_progress: bool = False,
    ) -> None:
        if translator.retriever is None or len(translator.stores) != 1:
            raise StoreError("--store: a sweep is made over one datastore")
        self.translator = translator
        self.store = translator.stores[0]
        self.sources = sources
        self.bleu, self.chrf = metrics(translator, references)
        self.text = digest_of([*sources, *references])
        self.folder = folder
        self.show_progress = show_progress
        self.nesting = Nesting(self.store)
        self._whole: dict[int | None, LocalRetriever] = {}
        self._subset: tuple[float, Subset] | None = None

    def check(self, points: Iterable[Point]) -> None:
        """Raise for an invalid point before any point is run."""
        for point in points:
            entries = len(self.nesting.entries_of(point.size))
            check_enough(point.settings.fixed.k, self.store.live_entries)
            if point.settings.fixed.k > entries:
                raise SettingsError(
                    f"--sizes {point.size:g}: has {entries:,} entries, fewer than --k {point.settings.fixed.k}"
                )
            if point.size < 1:
                check_trainable(self.store, point.size, entries)
            if point.nprobe is not None and self.store.manifest.index.nprobe is None:
                factory = self.store.manifest.index.factory
                raise SettingsError(f"--nprobe {point.nprobe}: the store's index {factory} has no clusters")

    def signature(self, point: Point) -> str:
        """Everything that the row depends on, apart from the machine's speed."""
        if not point.retrieves:
            return f"{signature_of(self.with_retriever(point, None))}|text:{self.text}"
        whole = signature_of(self.with_retriever(point, self.whole(point.nprobe)))
        size = "" if point.size == 1 else f"|size:{point.size:g},seed={SEED}"
        return f"{whole}{size}|text:{self.text}"

    def with_retriever(self, point: Point, retriever: LocalRetriever | None) -> Translator:
        return Translator(self.translator.translation_model, retriever, point.settings)

    def whole(self, nprobe: int | None) -> LocalRetriever:
        """The whole store."""
        if nprobe not in self._whole:
            self._whole[nprobe] = LocalRetriever([self.store], nprobe=nprobe)
        return self._whole[nprobe]

    def retriever(self, point: Point) -> LocalRetriever | None:
        if not point.retrieves:
            return None
        return self.whole(point.nprobe) if point.size == 1 else self.subset(point.size).retriever(point.nprobe)

    def subset(self, size: float) -> Subset:
        """A part of the store; the last one is kept, because points of one size follow one another."""
        if self._subset is None or self._subset[0] != size:
            entries = self.nesting.entries_of(size)
            with progress_bar(f"indexing {size:g}", len(entries), show=self.show_progress) as advance:
                subset = make_subset(self.store, entries, self.folder, lambda count: advance(count, 0))
            self._subset = size, subset
        return self._subset[1]

    def run(self, point: Point, signature: str, *, label: str) -> Row:
        """Translate, score and time one point."""
        retriever = self.retriever(point)
        translator = self.with_retriever(point, retriever)
        translator.translations(self.sources[:WARM_UP])
        scores = score_system(translator, self.sources, self.bleu, self.chrf, label=label if self.show_progress else "")
        assert scores.tokens_per_second is not None  # it was decoded just now
        return Row(
            weight=point.settings.fixed.weight,
            beam=point.settings.beam,
            **self.memory(point, retriever),
            bleu=scores.bleu,
            chrf=scores.chrf,
            tokens_per_second=scores.tokens_per_second,
            sentences=len(self.sources),
            bleu_signature=str(self.bleu.get_signature()),
            signature=signature,
        )

    def memory(self, point: Point, retriever: LocalRetriever | None) -> dict[str, Any]:
        """The columns about retrieval."""
        if retriever is None:
            return dict.fromkeys(("k", "temperature", "nprobe", "size", "segments", "entries", "index"))
        searcher = retriever.searchers[0]
        return {
            "k": point.settings.fixed.k,
            "temperature": point.settings.fixed.temperature,
            "nprobe": searcher.nprobe,
            "size": point.size,
            "segments": self.nesting.segments_of(point.size),
            "entries": retriever.entries,
            "index": self.index_name(point, searcher),
        }

    def index_name(self, point: Point, searcher: Any) -> str:
        """A part has an index of its own."""
        factory = self.store.manifest.index.factory if point.size == 1 else self.subset(point.size).factory
        return f"{factory},nprobe={searcher.nprobe}" if searcher.nprobe else factory


def digest_of(lines: Iterable[str]) -> str:
    """A hash of the text."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


class Table:
    """The rows of a CSV file by signature; those of other sweeps are kept."""

    def __init__(self, file: Path) -> None:
        check_writable(file, "--output")
        self.file = file
        self.rows = {row.signature: row for row in read_rows(file)} if file.exists() else {}

    def add(self, row: Row) -> None:
        self.rows[row.signature] = row
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in self.rows.values())
        write_durably(self.file, lambda out: out.write(text.getvalue().encode()))


def read_rows(file: Path) -> Iterator[Row]:
    """The rows of an earlier sweep; a file that is something else is never overwritten."""
    try:
        with file.open(encoding="utf-8", newline="") as opened:
            reader = csv.DictReader(opened)
            if tuple(reader.fieldnames or ()) != COLUMNS:
                raise SettingsError(f"--output {file}: not a table of `knnmt sweep`; choose another file")
            for record in reader:
                yield Row(**{name: value_of(name, text) for name, text in record.items()})
    except (ValueError, TypeError) as error:
        raise SettingsError(f"--output {file}: damaged ({error}); choose another file") from error


def value_of(column: str, text: str) -> Any:
    if text == "" or column in TEXT:
        return text or None
    return int(text) if column in WHOLE else float(text)
