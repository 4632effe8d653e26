"""The scanner of XML against an independent parser."""

import re
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from knnmt.scanning.xml_text import Namespaces, open_xml

LEAVES = [
    "text",
    "&amp;",
    "&#xE4;",
    "<![CDATA[<a>]]]]>",
    "<!-- <b> -- -->".replace(" -- ", " "),
    "<?p <c> ?>",
    "<d/>",
    "<e x='>' y=\"'\"/>",
]
XML = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.builds(
        lambda tag, parts: f"<{tag}>{''.join(parts)}</{tag.split()[0]} >",
        st.sampled_from(["a", "f:b xmlns:f='urn:f'", 'c q="a&lt;b>"']),
        st.lists(inner, max_size=4),
    ),
    max_leaves=12,
)
DOCTYPES = ["", "<!DOCTYPE a>", '<!DOCTYPE r SYSTEM "x>y" [<!ELEMENT a (b)> <!-- ]> \' --> <?x ]> ?>]>\n']


@settings(max_examples=200, deadline=None)
@given(XML, st.sampled_from(DOCTYPES), st.sampled_from(["utf-8", "utf-16", "utf-16-be"]))
def test_tokens_are_the_text_and_name_the_parsers_elements(
    tmp_path: Path, inside: str, doctype: str, encoding: str
) -> None:
    text = f'<?xml version="1.0" encoding="{encoding[:6]}"?>{doctype}<r>{inside}</r><!-- e -->\n'
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    (tmp_path / "a.xml").write_bytes((mark + text).encode(encoding))
    seen: list[str] = []
    document = open_xml(tmp_path / "a.xml", lambda name, _: seen.append(name))
    tokens = [(token.lastgroup, token.group()) for token in document.tokens()]
    assert "".join(found for _, found in tokens) == "\ufeff" * (encoding != "utf-8") + text
    tree = etree.fromstring(text.encode("utf-16" if encoding != "utf-8" else "utf-8"), etree.XMLParser(load_dtd=False))
    names = [etree.QName(element).localname for element in tree.iter("*")]
    starts = [re.split(r"[\s/>]", found[1:])[0].rpartition(":")[2] for kind, found in tokens if kind == "start"]
    assert starts == names == seen


def test_prefixes_are_known_where_they_are_declared() -> None:
    scopes = Namespaces()
    scopes.enter('<a xmlns="urn:a" xmlns:b="urn:b">')
    scopes.enter("<c xmlns:b='urn:c'>")
    assert (scopes.namespace_of("x"), scopes.namespace_of("b:x"), scopes.prefix_of("urn:b")) == ("urn:a", "urn:c", None)
    scopes.leave()
    assert (scopes.namespace_of("b:x"), scopes.prefix_of("urn:b"), scopes.prefix_of("urn:a")) == ("urn:b", "b", None)
