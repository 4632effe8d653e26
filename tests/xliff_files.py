"""XLIFF files of both generations, and tables of units with what is written into them."""

from rewriting import capitals

from knnmt.documents.content import DocumentUnit, Match, UnitResult

NAMESPACE_1 = "urn:oasis:names:tc:xliff:document:1.2"
NAMESPACE_2 = "urn:oasis:names:tc:xliff:document:2.0"
MACHINE = 'state="needs-review-translation" state-qualifier="mt-suggestion"'
STATE_2 = 'state="initial" subState="knnmt:machine"'


def file_1(body: str, attributes: str = 'source-language="de" target-language="en"') -> str:
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<xliff version="1.2" xmlns="{NAMESPACE_1}">'
        f'<file original="a.html" datatype="html" {attributes}><body>{body}</body></file></xliff>\n'
    )


def file_2(body: str, attributes: str = 'srcLang="de" trgLang="en"', version: str = "2.0") -> str:
    return f'<xliff xmlns="{NAMESPACE_2}" version="{version}" {attributes}>\n<file id="f">{body}</file>\n</xliff>'


def unit_1(inside: str, attributes: str = "") -> str:
    return f'<trans-unit id="1"{attributes}>{inside}</trans-unit>'


def with_everything(unit: DocumentUnit) -> UnitResult:
    match = Match("a & b", "c < d", 81.5, "house")
    return UnitResult(capitals(unit).target, "machine", 0.75, (match,))


# As they are read, and as they are written with capitals


UNITS_1 = [
    # no target, an empty one, an unfinished one, a finished one
    ("<source>eins</source>", f"<source>eins</source><target {MACHINE}>EINS</target>"),
    ("\n  <source>eins</source>\n", f"\n  <source>eins</source>\n  <target {MACHINE}>EINS</target>\n"),
    ("<source>eins</source><target/>", f"<source>eins</source><target {MACHINE}>EINS</target>"),
    (
        "<source>eins</source><target xml:lang='en' state='new' >alt</target><note>n</note>",
        "<source>eins</source><target xml:lang='en' state=\"needs-review-translation\" "
        'state-qualifier="mt-suggestion">EINS</target><note>n</note>',
    ),
    ("<source>eins</source><target>one</target>", "<source>eins</source><target>one</target>"),
    ('<source>a</source><target state="final">b</target>', '<source>a</source><target state="final">b</target>'),
    # nothing to translate
    ("<source/>", "<source/>"),
    ("<source> \n </source>", "<source> \n </source>"),
    ("<note>n</note>", "<note>n</note>"),
    # inline elements
    (
        '<source>a <g id="1">b <g id="2">c</g></g><x id="3"/> d</source>',
        f'<source>a <g id="1">b <g id="2">c</g></g><x id="3"/> d</source><target {MACHINE}>'
        'A <g id="1">B <g id="2">C</g></g><x id="3"/> D</target>',
    ),
    (
        '<source>a<bpt id="1">&lt;a t="<sub>der <x id="9"/> Titel</sub>"></bpt>b<ept id="1">&lt;/a></ept></source>',
        '<source>a<bpt id="1">&lt;a t="<sub>der <x id="9"/> Titel</sub>"></bpt>b<ept id="1">&lt;/a></ept></source>'
        f'<target {MACHINE}>A<bpt id="1">&lt;a t="<sub>DER <x id="9"/> TITEL</sub>"></bpt>B<ept id="1">&lt;/a></ept>'
        "</target>",
    ),
    (
        '<source>a <mrk mtype="protected">Foo</mrk> <mrk mtype="term">b</mrk> <ph id="1">%s</ph></source>',
        '<source>a <mrk mtype="protected">Foo</mrk> <mrk mtype="term">b</mrk> <ph id="1">%s</ph></source>'
        f'<target {MACHINE}>A <mrk mtype="protected">Foo</mrk> <mrk mtype="term">B</mrk> <ph id="1">%s</ph></target>',
    ),
    # references, CDATA, processing instructions, comments, line ends
    (
        "<source>a &amp; b &lt; c&#160;d &quot;e&quot;</source>",
        "<source>a &amp; b &lt; c&#160;d &quot;e&quot;</source>"
        f"<target {MACHINE}>A &amp; B &lt; C&#160;D &quot;E&quot;</target>",
    ),
    (
        "<source><![CDATA[a < b & c]]></source>",
        f"<source><![CDATA[a < b & c]]></source><target {MACHINE}><![CDATA[A < B & C]]></target>",
    ),
    (
        "<source>a<?br here?>b<!-- c -->d</source>",
        f"<source>a<?br here?>b<!-- c -->d</source><target {MACHINE}>A<?br here?>BD</target>",
    ),
    ("<source>a\r\nb</source>", f"<source>a\r\nb</source><target {MACHINE}>A\r\nB</target>"),
    # segments
    (
        '<source>a. b.</source><seg-source><mrk mtype="seg" mid="0">a.</mrk> <mrk mtype="seg" mid="1">b.</mrk>'
        "</seg-source>",
        '<source>a. b.</source><seg-source><mrk mtype="seg" mid="0">a.</mrk> <mrk mtype="seg" mid="1">b.</mrk>'
        f'</seg-source><target {MACHINE}><mrk mtype="seg" mid="0">A.</mrk> <mrk mtype="seg" mid="1">B.</mrk></target>',
    ),
    (
        '<source>a. b.</source><seg-source><g id="1"><mrk mtype="seg" mid="0">a.</mrk> <mrk mtype="seg" mid="1">b.</mrk>'
        '</g></seg-source><target><g id="1"><mrk mtype="seg" mid="0">one.</mrk> <mrk mtype="seg" mid="1"/></g></target>',
        '<source>a. b.</source><seg-source><g id="1"><mrk mtype="seg" mid="0">a.</mrk> <mrk mtype="seg" mid="1">b.</mrk>'
        f'</g></seg-source><target {MACHINE}><g id="1"><mrk mtype="seg" mid="0">one.</mrk> '
        '<mrk mtype="seg" mid="1">B.</mrk></g></target>',
    ),
    # an alternative is no target, and another namespace is no unit's
    (
        '<source>a</source><alt-trans><source>x</source><target>y</target></alt-trans><o:target xmlns:o="o">z</o:target>',
        f"<source>a</source><target {MACHINE}>A</target><alt-trans><source>x</source><target>y</target></alt-trans>"
        '<o:target xmlns:o="o">z</o:target>',
    ),
]

UNITS_2 = [
    ("<segment><source>a</source></segment>", f"<segment {STATE_2}><source>a</source><target>A</target></segment>"),
    (
        '<segment id="s" state="translated"><source>a</source><target/></segment>',
        '<segment id="s" state="initial" subState="knnmt:machine"><source>a</source><target>A</target></segment>',
    ),
    (
        '<segment state="final"><source>a</source><target>b</target></segment>',
        '<segment state="final"><source>a</source><target>b</target></segment>',
    ),
    (
        '<segment><source>a</source><target order="2">b</target></segment><ignorable><source> x </source></ignorable>',
        f'<segment {STATE_2}><source>a</source><target order="2">A</target></segment>'
        "<ignorable><source> x </source></ignorable>",
    ),
    (
        '<segment><source>a <pc id="1">b <mrk id="m" translate="no">c</mrk></pc> <ph id="2"/><cp hex="0001"/></source>'
        "</segment>",
        f'<segment {STATE_2}><source>a <pc id="1">b <mrk id="m" translate="no">c</mrk></pc> <ph id="2"/>'
        '<cp hex="0001"/></source><target>A <pc id="1">B <mrk id="m" translate="no">c</mrk></pc> <ph id="2"/>'
        '<cp hex="0001"/></target></segment>',
    ),
    (
        '<segment><source>a <sm id="m" translate="no"/>b <ph id="1"/> c<em startRef="m"/> d</source></segment>',
        f'<segment {STATE_2}><source>a <sm id="m" translate="no"/>b <ph id="1"/> c<em startRef="m"/> d</source>'
        '<target>A <sm id="m" translate="no"/>b <ph id="1"/> c<em startRef="m"/> D</target></segment>',
    ),
]
