"""What is written into XLIFF, against the official schemas of OASIS, which are not part of this project.

They are in Debian's package `php-symfony-translation`; `KNNMT_XLIFF_SCHEMAS` names a folder with `xliff-core-1.2-strict.xsd`,
`xliff-core-2.0.xsd` and `xml.xsd`, if they are elsewhere.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from rewriting import opened, rewritten
from xliff_files import UNITS_1, UNITS_2, file_1, file_2, unit_1, with_everything

DEBIAN = "/usr/share/php/Symfony/Component/Translation/Resources/schemas"
SCHEMAS = Path(os.environ.get("KNNMT_XLIFF_SCHEMAS", DEBIAN))
FILES = {1: "xliff-core-1.2-strict.xsd", 2: "xliff-core-2.0.xsd"}
NAMESPACES = {1: "urn:oasis:names:tc:xliff:document:1.2", 2: "urn:oasis:names:tc:xliff:document:2.0"}

pytestmark = [
    pytest.mark.skipif(not (SCHEMAS / FILES[1]).exists(), reason=f"the schemas of OASIS are not in {SCHEMAS}"),
    pytest.mark.skipif(shutil.which("xmllint") is None, reason="xmllint is not installed"),
]

XSD = "http://www.w3.org/2001/XMLSchema"
# XLIFF 1.2 takes attributes of others only if a schema declares them. These two are of ITS 2.0.
ITS = f"""<schema xmlns="{XSD}" targetNamespace="http://www.w3.org/2005/11/its">
<attribute name="mtConfidence"><simpleType><restriction base="decimal">
<minInclusive value="0"/><maxInclusive value="1"/></restriction></simpleType></attribute>
<attribute name="annotatorsRef"><simpleType><restriction base="string"><pattern value="[a-z-]+\\|\\S+"/>
</restriction></simpleType></attribute></schema>"""
# XLIFF 2.x's core lets any element stand beside the segments; this is what its module for matches says of them.
MATCHES = f"""<schema xmlns="{XSD}" xmlns:x="{NAMESPACES[2]}" targetNamespace="urn:oasis:names:tc:xliff:matches:2.0"
 xmlns:m="urn:oasis:names:tc:xliff:matches:2.0" elementFormDefault="qualified">
<import namespace="{NAMESPACES[2]}" schemaLocation="core-2.xsd"/>
<element name="matches"><complexType><sequence><element ref="m:match" maxOccurs="unbounded"/></sequence></complexType>
</element><element name="match"><complexType><sequence><element ref="x:source"/><element ref="x:target"/></sequence>
<attribute name="ref" use="required"><simpleType><restriction base="anyURI"><pattern value="#.+"/></restriction>
</simpleType></attribute><attribute name="type"/><attribute name="origin"/><attribute name="similarity" type="decimal"/>
</complexType></element></schema>"""


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The schemas with their imports beside them, and one for each generation that knows what we add."""
    folder = tmp_path_factory.mktemp("schemas")
    shutil.copy(SCHEMAS / "xml.xsd", folder)
    (folder / "its.xsd").write_text(ITS)
    (folder / "matches.xsd").write_text(MATCHES)
    for generation, name in FILES.items():
        text = (SCHEMAS / name).read_text(encoding="utf-8")
        text, changed = re.subn(r'schemaLocation="[^"]*xml\.xsd"', 'schemaLocation="xml.xsd"', text)
        assert changed == 1
        (folder / f"core-{generation}.xsd").write_text(text, encoding="utf-8")
        imports = {"http://www.w3.org/2005/11/its": "its", NAMESPACES[generation]: f"core-{generation}"}
        imports |= {"urn:oasis:names:tc:xliff:matches:2.0": "matches"} if generation == 2 else {}
        lines = [f'<import namespace="{key}" schemaLocation="{value}.xsd"/>' for key, value in imports.items()]
        (folder / f"all-{generation}.xsd").write_text(f'<schema xmlns="{XSD}">{"".join(lines)}</schema>')
    return folder


def complaints(schemas: Path, generation: int, document: bytes) -> str:
    """What xmllint says of a file that is not valid."""
    file = schemas / "checked.xlf"
    file.write_bytes(document)
    command = ["xmllint", "--noout", "--nonet", "--schema", str(schemas / f"all-{generation}.xsd"), str(file)]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert done.returncode in (0, 3), done.stderr  # 3: not valid; others: the schema or the call is wrong
    return done.stderr if done.returncode else ""


@pytest.mark.parametrize("generation", [1, 2])
def test_what_is_written_meets_the_schema(schemas: Path, tmp_path: Path, generation: int) -> None:
    """All rows of the tables in one file, so that xmllint starts but a few times."""
    table = UNITS_1 if generation == 1 else UNITS_2
    units = [inside for inside, _ in table if is_official(schemas, generation, inside)]
    assert len(units) > len(table) // 2  # the tables also hold what the schema has not
    before = file_of(generation, units)
    after = rewritten(opened(tmp_path, "a.xlf", before), with_everything)
    assert b"mtConfidence" in after
    assert (b"alt-trans" if generation == 1 else b"mtc:match") in after
    assert complaints(schemas, generation, after) == ""


def test_the_check_can_fail(schemas: Path) -> None:
    for generation, wrong in [
        (1, '<source>a</source><target state="odd">b</target>'),
        (1, '<source>a</source><target xmlns:its="http://www.w3.org/2005/11/its" its:mtConfidence="2">b</target>'),
        (2, '<segment state="odd"><source>a</source></segment>'),
        (2, '<m:matches xmlns:m="urn:oasis:names:tc:xliff:matches:2.0"/><segment><source>a</source></segment>'),
    ]:
        assert complaints(schemas, generation, file_of(generation, [wrong]).encode())


def is_official(schemas: Path, generation: int, inside: str) -> bool:
    return "<source" in inside and not complaints(schemas, generation, file_of(generation, [inside]).encode())


def file_of(generation: int, units: list[str]) -> str:
    if generation == 1:
        return file_1("".join(unit_1(inside).replace('id="1"', f'id="u{at}"', 1) for at, inside in enumerate(units)))
    return file_2("".join(f'<unit id="u{at}">{inside}</unit>' for at, inside in enumerate(units)))
