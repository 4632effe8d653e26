"""Units of XLIFF 1.2 and 2.x: which parts are translated, and how the translations are written."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from xml.sax.saxutils import escape, quoteattr

from knnmt.documents.content import ACCELERATORS, DocumentUnit, Limit, Match, UnitResult, plain_text
from knnmt.documents.document import DocumentOptions, Slot
from knnmt.documents.passages import Passage, spliced
from knnmt.documents.xliff_inline import SideReader
from knnmt.scanning.xml_text import ATTRIBUTE, ITS, Node
from knnmt.text.xliff import unfinished_1, unfinished_state

MATCHES = "urn:oasis:names:tc:xliff:matches:2.0"
TOOL = "knnmt"

Attributes = dict[str, str | None]  # to set; None: to remove
Change = tuple[int, int, str]  # a stretch of the file, and what replaces it


@dataclass(frozen=True, slots=True)
class Setting:
    """What surrounds a unit."""

    text: str  # of the whole file
    options: DocumentOptions
    target_lang: str | None
    place: str
    its: str | None  # the prefixes that are bound to the namespaces of ITS and of matches
    mtc: str | None
    namespace: str = ""  # of the root
    has_lines: bool = False  # xml:space="preserve"
    limits: tuple[Limit, ...] = ()  # of all of its text together


@dataclass(frozen=True, slots=True)
class Part:
    """A passage of a unit and where its translation goes."""

    passage: Passage
    source: Node
    context: str | None
    segment: Node | None = None  # XLIFF 1.2: the `mrk` that it is the inside of; 2.x: the `segment`
    existing: Passage | None = None
    number: int = 1  # of the segment in its unit

    def units(self, place: str, has_lines: bool, limits: tuple[Limit, ...]) -> Iterator[DocumentUnit]:
        for inner in self.passage.parts():
            whole = inner is self.passage
            old = self.existing.content if self.existing is not None and whole else None
            own = limits if whole else ()
            yield DocumentUnit(0, inner.content, place, self.context, old, ACCELERATORS, has_lines, own)

    @property
    def count(self) -> int:
        return sum(1 for _ in self.passage.parts())


@dataclass(frozen=True, slots=True)
class Written:
    """A part with its results."""

    part: Part
    results: tuple[UnitResult, ...]

    @property
    def text(self) -> str:
        return self.part.passage.written(iter(self.results))

    @property
    def is_exact(self) -> bool:
        return all(result.origin == "exact" for result in self.results)

    @property
    def confidence(self) -> float | None:
        known = [result.confidence for result in self.results if result.confidence is not None]
        return None if self.is_exact or not known else min(known)

    @property
    def matches(self) -> tuple[Match, ...]:
        return self.results[0].matches if self.part.passage.has_text else ()


@dataclass(frozen=True, slots=True)
class UnitWriter:
    """What both generations share: a unit as its parts, and the file's text with changes."""

    node: Node
    setting: Setting
    parts: list[Part] = field(default_factory=list)
    finished: list[Passage] = field(default_factory=list)  # targets of other segments

    def slot(self) -> Slot | None:
        units = tuple(
            unit for part in self.parts for unit in part.units(self.setting.place, self.has_lines, self.limits_of(part))
        )
        return Slot(units, self.written) if units else None

    def limits_of(self, part: Part) -> tuple[Limit, ...]:
        """What the limits leave to one of several segments, if the others to translate are as long as their sources."""
        if not self.setting.limits:
            return ()
        others = [*self.finished, *(one.passage for one in self.parts if one is not part)]
        taken = "".join(plain_text(one.content) for one in others)
        return tuple(replace(limit, most=limit.most - limit.size(taken)) for limit in self.setting.limits)

    @property
    def has_lines(self) -> bool:
        return preserves(self.node, self.setting.has_lines)

    def written(self, results: tuple[UnitResult, ...]) -> str:
        given = iter(results)
        done = [Written(part, tuple(islice(given, part.count))) for part in self.parts]
        changes = sorted(self.changes(done))
        start = self.node.start
        return spliced(
            self.setting.text[start : self.node.end], [(at - start, to - start, new) for at, to, new in changes]
        )

    def changes(self, done: list[Written]) -> list[Change]:
        raise NotImplementedError

    def reader(self) -> SideReader:
        return SideReader(self.setting.text, self.setting.place)

    def side(self, node: Node | None) -> Passage | None:
        return None if node is None or node.is_empty else self.reader().passage(node)

    def has(self, text: str) -> bool:
        """Whether an earlier run has written this already."""
        return self.setting.text.find(text, self.node.start, self.node.end) >= 0

    # Pieces of XML

    def its_attributes(self, confidence: float | None) -> Attributes:
        """The confidence; without one, what an earlier run wrote is removed."""
        prefix = self.setting.its or "its"
        if confidence is None:
            return {f"{prefix}:mtConfidence": None, f"{prefix}:annotatorsRef": None}
        declared: Attributes = {} if self.setting.its else {"xmlns:its": ITS}
        value = f"{min(1.0, max(0.0, confidence)):.4f}"
        return declared | {f"{prefix}:mtConfidence": value, f"{prefix}:annotatorsRef": f"mt-confidence|{TOOL}"}

    def indent(self, node: Node) -> str:
        """The white space before an element, for one beside it."""
        before = self.setting.text[max(0, node.start - 1024) : node.start]
        return before[len(before.rstrip()) :]

    def match_sides(self, match: Match, prefix: str, declared: str = "") -> str:
        source, target = (
            f"<{prefix}{side}{declared}>{escape(text)}</{prefix}{side}>"
            for side, text in (("source", match.source), ("target", match.target))
        )
        return source + target


class Unit1(UnitWriter):
    """A `trans-unit`."""

    __slots__ = ()

    @classmethod
    def of(cls, node: Node, setting: Setting) -> "Unit1":
        unit = cls(node, setting)
        unit.parts.extend(unit.found_parts())
        return unit

    @property
    def target(self) -> Node | None:
        return self.node.find("target")

    @property
    def segmented(self) -> Node | None:
        """`seg-source`, where it has segments."""
        side = self.node.find("seg-source")
        return side if side is not None and segments_in(side) else None

    def found_parts(self) -> list[Part]:
        source = self.node.find("source")
        if source is None or source.is_empty:
            return []
        must = self.setting.options.all_units or bool(unfinished_1(self.node, self.target))
        context = self.node.get("resname") or self.node.get("id") or None
        if self.segmented is not None:
            return self.segment_parts(self.segmented, must, context)
        existing = self.side(self.target)
        if must or existing is None or not has_text(existing):
            return [Part(self.reader().passage(source), source, context, None, existing)]
        return []

    def segment_parts(self, segmented: Node, must: bool, context: str | None) -> list[Part]:
        """The segments that are to be translated: all, or those whose target is empty."""
        old = {} if self.target is None else {mark.get("mid"): self.side(mark) for mark in segments_in(self.target)}
        parts = []
        for mark in segments_in(segmented):
            existing = old.get(mark.get("mid"))
            if must or existing is None or not has_text(existing):
                parts.append(Part(self.reader().passage(mark), segmented, context, mark, existing))
            else:
                self.finished.append(existing)
        return parts

    def changes(self, done: list[Written]) -> list[Change]:
        return [*self.approval(), self.target_change(done)]

    def approval(self) -> Iterator[Change]:
        """What a machine wrote is not approved, whatever stood there before."""
        if self.node.get("approved") == "yes":
            yield self.node.start, self.node.opened, with_attributes(self.node.tag, {"approved": "no"})

    def target_change(self, done: list[Written]) -> Change:
        inner = done[0].text if self.segmented is None else self.segmented_target(self.segmented, done)
        after = self.segmented or done[0].part.source
        target = self.target
        confidence = done[0].confidence if self.segmented is None else None
        tag = self.target_tag(done, confidence)
        matches = "".join(self.alternatives(done))
        if target is None:
            name = self.node.find("source").prefix + "target"  # type: ignore[union-attr]
            return after.end, after.end, f"{self.indent(after)}{tag}{inner}</{name}>{matches}"
        return target.start, target.end, f"{tag}{inner}</{target.qualified}>{matches}"

    def target_tag(self, done: list[Written], confidence: float | None) -> str:
        state = self.setting.options.state
        exact = all(written.is_exact for written in done)
        attributes: Attributes = {
            "state": "needs-review-translation" if state in (None, "initial") else state,
            "state-qualifier": "exact-match" if exact else "mt-suggestion",
        }
        source = self.node.find("source")
        target = self.target
        if target is not None:
            tag = f"{target.tag[:-2].rstrip()}>" if target.is_empty else target.tag
        else:
            tag = f"<{source.prefix}target>"  # type: ignore[union-attr]
            if source is not None and source.get("xml:lang") and self.setting.target_lang:
                attributes = Attributes({"xml:lang": self.setting.target_lang}) | attributes
        return with_attributes(tag, attributes | self.its_attributes(confidence))

    def segmented_target(self, segmented: Node, done: list[Written]) -> str:
        """A copy of `seg-source` with translations in its segments; finished ones come from the old target."""
        new = {written.part.segment.start: written for written in done if written.part.segment is not None}
        old = {} if self.target is None else {mark.get("mid"): mark for mark in segments_in(self.target)}
        changes: list[Change] = []
        for mark in segments_in(segmented):
            written = new.get(mark.start)
            if written is not None:
                tag = with_attributes(open_tag(mark), self.its_attributes(written.confidence))
                text = f"{tag}{written.text}</{mark.qualified}>"
            else:
                kept = old[mark.get("mid")]
                text = self.setting.text[kept.start : kept.end]
            changes.append((mark.start - segmented.opened, mark.end - segmented.opened, text))
        return spliced(self.setting.text[segmented.opened : segmented.closed], changes)

    def alternatives(self, done: list[Written]) -> Iterator[str]:
        """Near matches as `alt-trans`, after the target."""
        known = {child.start for child in done[0].part.source.children}  # the schema lets no others be referred to
        for written in done:
            prefix = written.part.source.prefix
            mark = written.part.segment
            segment = f" mid={quoteattr(mark.get('mid'))}" if mark is not None and mark.start in known else ""
            for match in written.matches:
                origin = f" origin={quoteattr(match.origin)}" if match.origin else ""
                facts = f'{segment} match-quality="{match.percent:.0f}%"{origin}'
                text = f"<{prefix}alt-trans{facts}>{self.match_sides(match, prefix)}</{prefix}alt-trans>"
                yield "" if self.has(text) else self.indent(written.part.source) + text


class Unit2(UnitWriter):
    """A `unit` of XLIFF 2.x with its segments."""

    __slots__ = ()

    @classmethod
    def of(cls, node: Node, setting: Setting) -> "Unit2":
        unit = cls(node, setting)
        context = node.get("name") or node.get("id") or None
        for number, segment in enumerate(node.every("segment"), start=1):
            source, existing = segment.find("source"), unit.side(segment.find("target"))
            unfinished = unfinished_state(segment.get("state", "initial"))
            must = setting.options.all_units or bool(unfinished) or existing is None or not has_text(existing)
            if source is not None and not source.is_empty and must:
                unit.parts.append(Part(unit.reader().passage(source), source, context, segment, existing, number))
            elif existing is not None:
                unit.finished.append(existing)
        return unit

    def changes(self, done: list[Written]) -> list[Change]:
        return [change for written in done for change in self.segment_changes(written)] + self.match_changes(done)

    def segment_changes(self, written: Written) -> Iterator[Change]:
        source, segment = written.part.source, written.part.segment
        assert segment is not None
        state = "translated" if self.setting.options.state == "translated" else "initial"
        origin = "exact-match" if written.is_exact else "machine"
        attributes: Attributes = {"state": state, "subState": f"{TOOL}:{origin}"}
        if written.matches and not segment.get("id"):
            attributes = Attributes({"id": self.new_id(written.part, "segment")}) | attributes
        yield segment.start, segment.opened, with_attributes(segment.tag, attributes)
        inner = self.annotated(written)
        target = segment.find("target")
        if target is None:
            name = f"{source.prefix}target"
            yield source.end, source.end, f"{self.indent(source)}<{name}>{inner}</{name}>"
        else:
            yield target.start, target.end, f"{open_tag(target)}{inner}</{target.qualified}>"

    def annotated(self, written: Written) -> str:
        """The text with its confidence, which in XLIFF 2 only a marker can have."""
        if written.confidence is None:
            return written.text
        prefix = written.part.source.prefix
        marker = f'<{prefix}mrk id="{self.new_id(written.part, "mt")}" type="its:any">'
        marker = with_attributes(marker, self.its_attributes(written.confidence))
        return f"{marker}{written.text}</{prefix}mrk>"

    def new_id(self, part: Part, kind: str) -> str:
        """An id inside the unit that is the same in every run."""
        return f"{TOOL}-{kind}{part.number}"

    def match_changes(self, done: list[Written]) -> list[Change]:
        """Near matches, in the unit's own list of matches where it has one."""
        own = next((child for child in self.node.children if self.lists_matches(child)), None)
        prefix = own.prefix if own is not None else f"{self.setting.mtc or 'mtc'}:"
        text = "".join(self.match_texts(done, prefix))
        if not text:
            return []
        if own is not None and own.is_empty:
            return [(own.start, own.end, f"{open_tag(own)}{text}</{own.qualified}>")]
        if own is not None:
            return [(own.closed, own.closed, text)]
        declared = "" if self.setting.mtc else f' xmlns:mtc="{MATCHES}"'
        at = self.node.opened
        first = next((child for child in self.node.children if child.kind == "start"), self.node)
        return [(at, at, f"{self.indent(first)}<{prefix}matches{declared}>{text}</{prefix}matches>")]

    def lists_matches(self, child: Node) -> bool:
        """Whether an element is `mtc:matches`, wherever its prefix is declared."""
        prefix = child.prefix.removesuffix(":")
        declared = child.get(f"xmlns:{prefix}" if prefix else "xmlns")
        bound = declared or (MATCHES if prefix and prefix == self.setting.mtc else "")
        return child.name == "matches" and bound == MATCHES

    def match_texts(self, done: list[Written], prefix: str) -> Iterator[str]:
        for written in done:
            segment, core = written.part.segment, written.part.source.prefix
            assert segment is not None
            reference = segment.get("id") or self.new_id(written.part, "segment")
            declared = f" xmlns={quoteattr(self.setting.namespace)}" if core == prefix == "" else ""
            for match in written.matches:
                origin = f" origin={quoteattr(match.origin)}" if match.origin else ""
                facts = f'ref="#{escape(reference)}" type="tm" similarity="{match.percent:.1f}"{origin}'
                text = f"<{prefix}match {facts}>{self.match_sides(match, core, declared)}</{prefix}match>"
                yield "" if self.has(text) else text


def preserves(node: Node, inherited: bool) -> bool:
    """Whether white space in an element is part of its text."""
    said = node.get("xml:space")
    return said == "preserve" if said else inherited


def has_text(passage: Passage) -> bool:
    return passage.has_text or bool(plain_text(passage.content).strip())


def segments_in(side: Node) -> list[Node]:
    """`mrk` elements that are segments, at any depth."""
    found = []
    for child in side.children:
        if child.own and child.name == "mrk" and child.get("mtype") == "seg":
            found.append(child)
        else:
            found += segments_in(child)
    return found


def open_tag(node: Node) -> str:
    return f"{node.tag[:-2].rstrip()}>" if node.is_empty else node.tag


def with_attributes(tag: str, attributes: Attributes) -> str:
    """A start tag with attributes set, or removed where the value is None; the others stay as they are."""
    for name, value in attributes.items():
        new = "" if value is None else f" {name}={quoteattr(value)}"
        found = ATTRIBUTE.finditer(tag) if name in tag else ()
        present = next((match for match in found if match.group(1) == name), None)
        if present is not None:
            tag = tag[: present.start()].rstrip() + new + tag[present.end() :]
        elif value is not None:
            end = 2 if tag.endswith("/>") else 1
            tag = f"{tag[:-end].rstrip()}{new}{tag[-end:]}"
    return tag
