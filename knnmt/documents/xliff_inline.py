"""The inline elements of XLIFF 1.2 and 2.x: a side of a unit as a passage."""

from dataclasses import dataclass

from knnmt.documents.passages import Passage, Tags
from knnmt.errors import DocumentError
from knnmt.scanning.xml_text import Node, XmlSpelling, resolved
from knnmt.text.xliff import is_protected

PAIRED = ("g", "pc", "mrk")  # elements around text
CODES = ("bpt", "ept", "ph", "it", "ut")  # XLIFF 1.2: elements whose content is code, but for `sub`
# Elements that open and close a stretch from afar, and the attributes by which they know each other.
OPENING = {"bx": ("rid", "id"), "bpt": ("rid", "id"), "sc": ("id",), "sm": ("id",)}
CLOSING = {"ex": ("rid", "id"), "ept": ("rid", "id"), "ec": ("startRef",), "em": ("startRef",)}
KEYS = {"bx": "x", "ex": "x", "bpt": "pt", "ept": "pt", "sc": "c", "ec": "c", "sm": "m", "em": "m"}


@dataclass(frozen=True, slots=True)
class SideReader:
    """Reads the inside of an element."""

    text: str  # of the whole file
    place: str  # for messages

    def passage(self, node: Node) -> Passage:
        raw = self.text[node.opened : node.closed]
        return self.passage_of(node, XmlSpelling.of(raw))

    def passage_of(self, node: Node, spelling: XmlSpelling) -> Passage:
        tags = Tags()
        self.add_inside(node, tags, spelling)
        return Passage(tags.content(), self.text[node.opened : node.closed], spelling, tuple(tags.nested))

    def add_inside(self, node: Node, tags: Tags, spelling: XmlSpelling) -> None:
        done = node.opened
        for child in protected_stretches(node.children):
            tags.text(self.plain(self.text[done : child.start]))
            self.add(child, tags, spelling)
            done = child.end
        tags.text(self.plain(self.text[done : node.closed]))

    def plain(self, raw: str) -> str:
        """Text without references, line ends as XML reads them."""
        try:
            return resolved(raw).replace("\r\n", "\n")
        except KeyError as error:
            raise DocumentError(f"{self.place} uses the entity {error}; entities are not resolved") from error

    def add(self, node: Node, tags: Tags, spelling: XmlSpelling) -> None:
        markup = self.text[node.start : node.end]
        if node.kind == "cdata":
            tags.text(markup[9:-3].replace("\r\n", "\n"))
        elif node.kind in ("instruction", "stretch"):
            tags.empty(markup)
        elif node.kind == "start":
            self.add_element(node, markup, tags, spelling)

    def add_element(self, node: Node, markup: str, tags: Tags, spelling: XmlSpelling) -> None:
        if node.own and node.name in PAIRED and not node.is_empty and not is_protected(node):
            key = f"element {node.start}"
            tags.open(node.tag, key)
            self.add_inside(node, tags, spelling)
            tags.close(self.text[node.closed : node.end], key)
            return
        tag = add_marker(node, markup, tags) if node.own else tags.empty(markup)
        if node.own and node.name in CODES:
            self.add_subflows(node, tag, node.start, tags, spelling)

    def add_subflows(self, node: Node, tag: int, start: int, tags: Tags, spelling: XmlSpelling) -> None:
        """Text inside code, such as a footnote; each is a separate passage."""
        for child in node.children:
            if child.own and child.name == "sub" and not child.is_empty:
                tags.nest(tag, child.opened - start, child.closed - start, self.passage_of(child, spelling))


def add_marker(node: Node, markup: str, tags: Tags) -> int:
    """An element that is a single tag, or one end of a pair."""
    name = node.name
    ends = OPENING.get(name) or CLOSING.get(name) or ()
    reference = next((node.get(attribute) for attribute in ends if node.get(attribute)), "")
    if not reference:
        return tags.empty(markup)
    key = f"{KEYS[name]} {reference}"
    return tags.open(markup, key) if name in OPENING else tags.close(markup, key)


def protected_stretches(nodes: list[Node]) -> list[Node]:
    """The nodes, with `<sm translate="no"/>` to its `<em/>` as one."""
    kept: list[Node] = []
    ends = {node.get("startRef"): node for node in reversed(nodes) if node.own and node.name == "em"}
    until = 0
    for node in nodes:
        if node.start < until:
            continue
        if node.own and node.name == "sm" and node.get("translate") == "no":
            until = max(node.end, ends.get(node.get("id"), node).end)
            node = Node("stretch", node.start, node.opened, node.tag, node.closed, until, own=False)
        kept.append(node)
    return kept
