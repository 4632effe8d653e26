"""Plural rules of gettext: the header's own, or the usual one of a language."""

import gettext
import re
from collections.abc import Callable
from dataclasses import dataclass

from knnmt.text.languages import normal_code

FORMS = re.compile(r"nplurals\s*=\s*(\d+)\s*;\s*plural\s*=\s*([^;]+)")
MOST = 10  # forms: msgstr[0] to msgstr[9]
NUMBERS = range(201)  # those that show which form is for one number alone

ONE = "nplurals=1; plural=0;"
TWO = "nplurals=2; plural=(n != 1);"
FRENCH = "nplurals=2; plural=(n > 1);"
EAST_SLAVIC = "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);"
CZECH = "nplurals=3; plural=(n==1 ? 0 : n>=2 && n<=4 ? 1 : 2);"

# The rules that gettext's own manual and the large translation projects use.
RULES = {
    **dict.fromkeys(["ja", "ko", "zh", "vi", "th", "id", "ms", "lo", "my", "bo", "dz", "jv", "su", "wo", "yo"], ONE),
    **dict.fromkeys(["fr", "pt-br", "am", "fa", "fil", "ln", "mg", "oc", "ti", "tl", "tg", "uz", "hy"], FRENCH),
    **dict.fromkeys(["ru", "uk", "be", "sr", "hr", "bs"], EAST_SLAVIC),
    **dict.fromkeys(["cs", "sk"], CZECH),
    "ar": "nplurals=6; plural=(n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5);",
    "cy": "nplurals=4; plural=(n==1 ? 0 : n==2 ? 1 : (n!=8 && n!=11) ? 2 : 3);",
    "ga": "nplurals=5; plural=(n==1 ? 0 : n==2 ? 1 : n<7 ? 2 : n<11 ? 3 : 4);",
    "gd": "nplurals=4; plural=((n==1 || n==11) ? 0 : (n==2 || n==12) ? 1 : (n>2 && n<20) ? 2 : 3);",
    "is": "nplurals=2; plural=(n%10!=1 || n%100==11);",
    "lt": "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && (n%100<10 || n%100>=20) ? 1 : 2);",
    "lv": "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n!=0 ? 1 : 2);",
    "mk": "nplurals=2; plural=(n==1 || n%10==1 ? 0 : 1);",
    "mt": "nplurals=4; plural=(n==1 ? 0 : n==0 || (n%100>1 && n%100<11) ? 1 : (n%100>10 && n%100<20) ? 2 : 3);",
    "pl": "nplurals=3; plural=(n==1 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);",
    "ro": "nplurals=3; plural=(n==1 ? 0 : (n==0 || (n%100>0 && n%100<20)) ? 1 : 2);",
    "sl": "nplurals=4; plural=(n%100==1 ? 0 : n%100==2 ? 1 : n%100==3 || n%100==4 ? 2 : 3);",
    **dict.fromkeys(
        ["af", "az", "bg", "bn", "ca", "da", "de", "el", "en", "eo", "es", "et", "eu", "fi", "gl", "gu", "he", "hi",
         "hu", "it", "ka", "kk", "km", "kn", "ku", "ky", "lb", "ml", "mn", "mr", "nb", "ne", "nl", "nn", "no", "or",
         "pa", "ps", "pt", "si", "so", "sq", "sv", "sw", "ta", "te", "tr", "tt", "ug", "ur", "xh", "yi", "zu"],
        TWO,
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PluralRule:
    """How many forms a language has, and which is for a number."""

    text: str
    forms: int
    form_of: Callable[[int], int]

    @property
    def singular(self) -> int:
        return self.form_of(1)

    @property
    def only_one(self) -> bool:
        """Whether the form of 1 is for no other number, so that it need not name the number."""
        return [number for number in NUMBERS if self.form_of(number) == self.singular] == [1]


def parsed_rule(text: str) -> PluralRule | None:
    """A value of `Plural-Forms`; None if it is not valid."""
    match = FORMS.search(text)
    if match is None:
        return None
    try:
        form_of = gettext.c2py(match.group(2).strip())
        forms = int(match.group(1))
        if not 1 <= forms <= MOST or any(not 0 <= form_of(number) < forms for number in NUMBERS):
            return None
    except (ValueError, ArithmeticError, RecursionError):
        return None
    return PluralRule(text, forms, form_of)


def usual_rule(language: str) -> PluralRule | None:
    """The rule of a language; `pt-BR` has its own, `de-AT` has that of `de`."""
    code = normal_code(language)
    text = RULES.get(code) or RULES.get(code.partition("-")[0])
    return None if text is None else parsed_rule(text)
