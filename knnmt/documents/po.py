"""PO and POT: messages without a translation are translated and marked as fuzzy."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from knnmt.documents.content import ACCELERATORS, DocumentUnit, UnitResult, plain_text
from knnmt.documents.document import DocumentOptions, Piece, Slot, SplicedDocument
from knnmt.documents.plain import around
from knnmt.errors import DocumentError
from knnmt.scanning.encodings import MARK, EncodedFile
from knnmt.scanning.po_entries import Entry, Statement, read_entries, statement_lines
from knnmt.text.placeholders import placeholders
from knnmt.text.plurals import PluralRule, parsed_rule, usual_rule
from knnmt.text.po import charset_of, check_language

FIELD = re.compile(r"([^:\n]+):[ \t]*(.*)")


def open_po(path: Path, options: DocumentOptions) -> SplicedDocument:
    file = EncodedFile(path, charset_of(path))
    header = header_of(file)
    check_language(header, options.target_lang, path)
    catalogue = Catalogue(file, options, header)
    language = header.get("Language", "").strip() or None
    return SplicedDocument(path, "PO", file.encoding, catalogue.pieces, None, language)


def header_of(file: EncodedFile) -> dict[str, str]:
    """The fields of the first entry, if it is a header."""
    first = next(read_entries(file.lines(), str(file.path)))
    return header_fields(first.text_of("msgstr") or "") if first.is_header else {}


def header_fields(text: str) -> dict[str, str]:
    matches = [FIELD.fullmatch(line) for line in text.split("\n")]
    return {match.group(1): match.group(2) for match in matches if match}


@dataclass(frozen=True, slots=True)
class Catalogue:
    file: EncodedFile
    options: DocumentOptions
    header: dict[str, str]

    @property
    def language(self) -> str:
        return self.header.get("Language", "").partition("@")[0].strip() or self.options.target_lang or ""

    @property
    def accelerators(self) -> str:
        """The sign that the header names, as Lokalize and Translate Toolkit write it; else those that are in use."""
        named = self.header.get("X-Accelerator-Marker")
        return ACCELERATORS if named is None else named.strip()[:1]

    @property
    def rule(self) -> PluralRule | None:
        return parsed_rule(self.header.get("Plural-Forms", "")) or usual_rule(self.language)

    def pieces(self) -> Iterator[Piece]:
        rule = self.rule
        for number, entry in enumerate(read_entries(self.file.lines(), str(self.file.path))):
            if number == 0 and entry.is_header:
                yield self.completed_header(entry)
                continue
            if number == 0 and entry.statements:
                yield from self.new_header(entry)
            if self.is_wanted(entry, rule):
                message = Message(entry, self.options, f"{self.file.path}: line {entry.at}", self.accelerators)
                yield message.plural_slot(rule) if "msgid_plural" in entry.statements else message.slot()
            else:
                yield "".join(entry.lines)

    def is_wanted(self, entry: Entry, rule: PluralRule | None) -> bool:
        if entry.obsolete or not entry.statements or not (entry.text_of("msgid") or "").strip():
            return False
        if "fuzzy" in entry.flags and self.options.all_units:
            return True
        lacking = "msgid_plural" in entry.statements and rule is not None and len(entry.forms) < rule.forms
        return lacking or any(not form.text.strip() for form in entry.forms)

    # The header

    def completed(self) -> dict[str, str]:
        """The fields that a catalogue must have to be used and has not; what a person has filled in stays."""
        new: dict[str, str] = {}
        if self.header.get("PO-Revision-Date", "YEAR").startswith("YEAR"):
            new["PO-Revision-Date"] = datetime.now(UTC).strftime("%Y-%m-%d %H:%M+0000")
        if not self.header.get("Language", "").strip() and self.language:
            new["Language"] = self.language.replace("-", "_")
        if "MIME-Version" not in self.header:
            new["MIME-Version"] = "1.0"
        kind = self.header.get("Content-Type", "")
        if "charset=" not in kind or "charset=CHARSET" in kind:
            new["Content-Type"] = "text/plain; charset=UTF-8"
        if "Content-Transfer-Encoding" not in self.header:
            new["Content-Transfer-Encoding"] = "8bit"
        if parsed_rule(self.header.get("Plural-Forms", "")) is None and self.rule is not None:
            new["Plural-Forms"] = self.rule.text
        return new

    def completed_header(self, entry: Entry) -> str:
        new, old = self.completed(), entry.forms[0]
        if new:
            return entry.written(header_lines(old.text, new), fuzzy=False)
        if "fuzzy" in entry.flags:  # programs pass over a header with this mark
            return entry.written(statement_lines("msgstr", old.text, like=old), fuzzy=False)
        return "".join(entry.lines)

    def new_header(self, first: Entry) -> Iterator[str]:
        if first.lines and first.lines[0].startswith(MARK):
            yield MARK
            first.lines[0] = first.lines[0][1:]
        yield first.line_end.join(['msgid ""', *header_lines("", self.completed()), "", ""])


def header_lines(text: str, new: dict[str, str]) -> list[str]:
    """A header with new values for some fields, one to a line."""
    left = dict(new)
    lines = []
    for line in text.removesuffix("\n").split("\n") if text else []:
        name = line.partition(":")[0]
        lines.append(f"{name}: {left.pop(name)}" if name in left else line)
    lines += [f"{name}: {value}" for name, value in left.items()]
    return ['msgstr ""', *(f'"{escaped(line)}\\n"' for line in lines)]


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


@dataclass(frozen=True, slots=True)
class Message:
    """An entry that is to be translated."""

    entry: Entry
    options: DocumentOptions
    place: str
    accelerators: str

    def slot(self) -> Slot:
        source = self.entry.statements["msgid"]
        unit = self.unit(source, self.entry.statements["msgstr"])
        return Slot((unit,), partial(self.written, [("msgstr", source)], [0]))

    def plural_slot(self, rule: PluralRule | None) -> Slot:
        """A unit for the singular and one for the plural, each written into its forms."""
        if rule is None:
            hint = "the header has no Plural-Forms; fill it in, or give --target-lang"
            raise DocumentError(f"{self.place} has plural forms, but {hint}")
        one, many = self.entry.statements["msgid"], self.entry.statements["msgid_plural"]
        apart = rule.forms > 1 and (rule.only_one or placeholders(one.text) == placeholders(many.text))
        sources = [one, many] if apart else [many]
        which = [0 if apart and form == rule.singular else len(sources) - 1 for form in range(rule.forms)]
        keywords = [(f"msgstr[{form}]", sources[which[form]]) for form in range(rule.forms)]
        units = [self.unit(source, self.form(which.index(at))) for at, source in enumerate(sources)]
        return Slot(tuple(units), partial(self.written, keywords, which))

    def form(self, number: int) -> Statement | None:
        return self.entry.statements.get(f"msgstr[{number}]")

    def unit(self, source: Statement, target: Statement | None) -> DocumentUnit:
        existing = (target.text,) if target is not None and target.text.strip() else None
        context = self.entry.text_of("msgctxt")
        text = around(source.text)[1]
        return DocumentUnit(0, (text,), self.place, context, existing, self.accelerators, has_lines=True)

    def written(self, keywords: list[tuple[str, Statement]], which: list[int], results: tuple[UnitResult, ...]) -> str:
        lines: list[str] = []
        doubtful = self.options.fuzzy
        for (keyword, source), result in zip(keywords, which, strict=True):
            before, _, after = around(source.text)
            text = before + plain_text(results[result].target).strip("\n") + after
            kept = self.finished(keyword)
            if kept is not None:
                lines += statement_lines(keyword, kept.text, like=kept)
                continue
            doubtful = doubtful or self.is_misordered(source.text, text)
            lines += statement_lines(keyword, text, like=source)
        return self.entry.written(lines, fuzzy=doubtful, previous=self.replaced(lines))

    def finished(self, keyword: str) -> Statement | None:
        """A plural form that has its translation already."""
        form = self.entry.statements.get(keyword)
        return form if form is not None and form.text.strip() and "fuzzy" not in self.entry.flags else None

    def is_misordered(self, source: str, text: str) -> bool:
        """Whether a program would put its arguments into the wrong places."""
        is_format = any(flag.endswith("-format") and not flag.startswith("no-") for flag in self.entry.flags)
        return is_format and ordered_arguments(source) != ordered_arguments(text)

    def replaced(self, lines: list[str]) -> list[str]:
        """The translations that go, as comments: PO itself can keep only a previous msgid."""
        forms = [form for form in self.entry.forms if form.text.strip()]
        old = [line for form in forms for line in statement_lines(form.keyword, form.text, like=form)]
        return [] if set(old) <= set(lines) else [f"previous {line}" for line in old]


def ordered_arguments(text: str) -> list[str]:
    """The placeholders that are known by their order alone: `%s`, but not `%1$s`, `%(name)s` or `{}`."""
    return [found for found in placeholders(text) if found[0] == "%" and found[1] not in "%(" and "$" not in found]
