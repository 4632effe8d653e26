"""Random things that a translation repeats letter for letter: placeholders, tags, paths, options, names, numbers."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

LETTERS = "abcdefghijklmnopqrstuvwxyz"
ONSETS = (*"bdfghjklmnprstvwz", "br", "ch", "dr", "gr", "kl", "sch", "st", "tr", "")
VOWELS = (*"aeiouäöüy", "ei", "ie", "ou")
CODAS = ("", "", "n", "r", "s", "l", "m", "ck", "tz", "nd", "rt", "v", "x")
SOFTWARE = """name file user count path host date size title page value item url id officename productname version app
number error key type code list text"""
MARKUP = """b i em a p br g x ph emph link code strong span ul item node image filename bookmark variable literal
guilabel command switchinline ahelp"""
PLACES = "usr lib etc var home tmp dev bin opt text shared guide config share"
SUFFIXES = "txt conf xhp png html py desktop xml log so jpg pdf kgm org de com"
NAMES, TAGS, FOLDERS, ENDINGS = (tuple(words.split()) for words in (SOFTWARE, MARKUP, PLACES, SUFFIXES))
CONVERSIONS = "sdsdsduixfcg"


class Chooser(Random):
    """A random generator that also knows words of the training text.

    A model that has only copied words that nobody uses still translates the words of its language wherever they
    stand, also inside a name such as `& konsole;`.
    """

    lexicon: tuple[str, ...] = NAMES


def word(choose: Chooser) -> str:
    """A word that software uses, one of the text, perhaps altered, or one that nobody uses."""
    kind = choose.random()
    if kind < 0.25:
        return choose.choice(NAMES)
    if kind < 0.6:
        return altered(choose.choice(choose.lexicon), choose)
    return "".join(choose.choices(LETTERS, k=choose.randint(2, 9)))


def altered(text: str, choose: Chooser) -> str:
    """The word as it is, with a letter more or less, or joined with another."""
    at = choose.randrange(len(text))
    return choose.choice(
        (text, text, choose.choice("kgx") + text, text[:at] + text[at + 1 :] + choose.choice(LETTERS),
         text + choose.choice(choose.lexicon))
    )  # fmt: skip


def name(choose: Chooser) -> str:
    """A name that no training text has."""
    syllables = (
        choose.choice(ONSETS) + choose.choice(VOWELS) + choose.choice(CODAS) for _ in range(choose.randint(1, 4))
    )
    return "".join(syllables).capitalize()


def number(choose: Chooser) -> str:
    digits = "".join(choose.choices(choose.choice(("0123456789", "000125")), k=choose.randint(1, 9)))
    return choose.choice(
        (digits, f"{digits}.{choose.randint(0, 99)}", f"{choose.randint(0, 20)}.{choose.randint(0, 20)}.{digits}")
    )


def percent(choose: Chooser) -> str:
    conversion, place = choose.choice(CONVERSIONS), choose.randint(1, 9)
    return choose.choice(
        (f"%{conversion}", f"%{conversion}", f"%{place}", f"%{place}", f"%{place}${conversion}",
         f"%({word(choose)}){conversion}", f"%l{conversion}", f"%{place}.{choose.randint(0, 9)}f", f"%0{place}d",
         f"%{choose.choice(LETTERS).upper()}", f"%{conversion}:%{choose.choice(CONVERSIONS)}")
    )  # fmt: skip


def braces(choose: Chooser) -> str:
    inner = choose.choice((str(choose.randint(0, 12)), word(choose), f"{word(choose)}_{word(choose)}"))
    return choose.choice(
        (f"{{{inner}}}", f"{{{inner}}}", f"{{{{{inner}}}}}", f"${{{inner}}}", f"${{{inner}}}", f"$[{inner}]",
         f"${inner.upper()}", f"${inner}", "{}")
    )  # fmt: skip


def tag(choose: Chooser) -> str:
    kind, value = choose.choice(TAGS), choose.choice((str(choose.randint(0, 9999)), word(choose)))
    key = choose.choice(("id", "name", "href", "class", "title", word(choose)))
    return choose.choice(
        (f"<{kind}>", f"</{kind}>", f"<{kind}/>", f'<{kind} {key}="{value}"/>', f'<{kind} {key}="{value}">',
         f"<{kind} {key}='{value}'>", f'< {kind} {key}= " {value} " >', f"< / {kind} >", f"<{word(choose)}>")
    )  # fmt: skip


def entity(choose: Chooser) -> str:
    inner = choose.choice(("amp", "lt", "gt", "quot", "nbsp", "kde", "unix", word(choose), word(choose)))
    return choose.choice(
        (
            f"&{inner};",
            f"& {inner};",
            f"& {inner.capitalize()};",
            f"&#{choose.randint(32, 9999)};",
            f"& {inner};",
            f"& k{inner};",
            f"& {name(choose)}.{name(choose)};",
            f"& {inner.upper()};",
        )
    )


def option(choose: Chooser) -> str:
    long = f"--{word(choose)}"
    return choose.choice(
        (long, long, f"{long}-{word(choose)}", f"{long}={word(choose)}", f"-{choose.choice(LETTERS)}",
         f"-{choose.choice(LETTERS).upper()}", f"-{word(choose)}", f"{long}={word(choose).upper()}",
         f"{long}={name(choose).upper()}", f"{long}-{name(choose).upper()}")
    )  # fmt: skip


def path(choose: Chooser) -> str:
    folders = [choose.choice((choose.choice(FOLDERS), word(choose))) for _ in range(choose.randint(1, 4))]
    end = choose.choice(("", f".{choose.choice(ENDINGS)}"))
    return choose.choice(
        ("/" + "/".join(folders) + end, "/" + "/".join(folders) + end, "/".join([*folders, word(choose)]) + end,
         "/".join(["", *folders, "".join(choose.choices("0001235", k=choose.randint(2, 8)))]) + end,
         "C:\\" + "\\".join(folders) + end, "~/." + "/".join(folders), "/".join(folders) + f"/{number(choose)}" + end)
    )  # fmt: skip


def file(choose: Chooser) -> str:
    joined = choose.choice(("_", "-", "")).join(word(choose) for _ in range(choose.randint(1, 3)))
    return f"{joined}.{choose.choice(ENDINGS)}"


def address(choose: Chooser) -> str:
    host = f"{word(choose)}.{choose.choice(('org', 'com', 'de', 'net'))}"
    return choose.choice(
        (f"{word(choose)}@{host}", f"http://www.{host}/", f"https://{host}/{word(choose)}", f"www.{host}",
         f"{word(choose)}.{word(choose)}@{host}", f"@{word(choose)}:{word(choose)}", f"@{word(choose)}")
    )  # fmt: skip


def call(choose: Chooser) -> str:
    return "_".join(word(choose) for _ in range(choose.randint(1, 3))) + "()"


def identifier(choose: Chooser) -> str:
    parts = [word(choose) for _ in range(choose.randint(2, 3))]
    return choose.choice(
        ("_".join(parts), "_".join(parts).upper(), "".join(part.capitalize() for part in parts),
         f"{parts[0]}={parts[1]}", f"{parts[0]}|{parts[1]}", f"#{choose.randint(1, 99999)}", f"{parts[0].upper()}",
         f"\\{parts[0]}", f"\\\\{parts[0]}{{{parts[1]}}}", f"{parts[0]}::{parts[1]}", f"0x{choose.randint(0, 2**24):x}")
    )  # fmt: skip


KINDS: tuple[tuple[Callable[[Chooser], str], float], ...] = (
    (percent, 3), (braces, 3), (tag, 2), (entity, 3), (option, 2), (path, 1.5), (file, 1), (address, 1),
    (identifier, 1.5), (call, 1.5), (name, 3), (number, 2),
)  # fmt: skip


def thing(choose: Chooser) -> str:
    makers, weights = zip(*KINDS, strict=True)
    return str(choose.choices(makers, weights)[0](choose))
