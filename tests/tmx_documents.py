"""TMX written for a test, and read again."""

from hypothesis import settings
from xml_readers import Documents

from knnmt.text.tmx import read_tmx

DOCTYPE = '<!DOCTYPE tmx SYSTEM "tmx14.dtd">'
STEADILY = settings(deadline=None, derandomize=True, max_examples=50)


def tuv(code: str, segment: str) -> str:
    return f'<tuv xml:lang="{code}"><seg>{segment}</seg></tuv>'


def unit(**segments: str) -> str:
    """A unit by language; `de_AT` stands for `de-AT`."""
    return f"<tu>{''.join(tuv(code.replace('_', '-'), text) for code, text in segments.items())}</tu>"


def tmx(*units: str, header: str = '<header srclang="de"/>', root: str = 'tmx version="1.4"') -> str:
    return f"<{root}>{header}<body>{''.join(units)}</body></tmx>"


TMX = Documents(read_tmx, "memory.tmx")
read, message, said = TMX.read, TMX.message, TMX.said
