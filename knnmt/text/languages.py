"""Language codes: as people write them (`de`), and as multilingual models do (`de_DE`, `deu_Latn`)."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TypeVar

from knnmt.errors import ModelError

Item = TypeVar("Item")

# ISO 639-1 to the ISO 639-3 codes that NLLB uses, with the script where there are several.
NLLB_NAMES = {
    "af": "afr", "ak": "aka", "am": "amh", "ar": "arb_Arab", "as": "asm", "ay": "ayr", "az": "azj", "ba": "bak",
    "be": "bel", "bg": "bul", "bm": "bam", "bn": "ben_Beng", "bo": "bod", "bs": "bos", "ca": "cat", "cs": "ces",
    "cy": "cym", "da": "dan", "de": "deu", "dz": "dzo", "ee": "ewe", "el": "ell", "en": "eng", "eo": "epo",
    "es": "spa", "et": "est", "eu": "eus", "fa": "pes", "fi": "fin", "fj": "fij", "fo": "fao", "fr": "fra",
    "ga": "gle", "gd": "gla", "gl": "glg", "gn": "grn", "gu": "guj", "ha": "hau", "he": "heb", "hi": "hin",
    "hr": "hrv", "ht": "hat", "hu": "hun", "hy": "hye", "id": "ind", "ig": "ibo", "is": "isl", "it": "ita",
    "ja": "jpn", "jv": "jav", "ka": "kat", "kg": "kon", "ki": "kik", "kk": "kaz", "km": "khm", "kn": "kan",
    "ko": "kor", "ku": "kmr", "ky": "kir", "lb": "ltz", "lg": "lug", "li": "lim", "ln": "lin", "lo": "lao",
    "lt": "lit", "lv": "lvs", "mg": "plt", "mi": "mri", "mk": "mkd", "ml": "mal", "mn": "khk", "mr": "mar",
    "ms": "zsm", "mt": "mlt", "my": "mya", "nb": "nob", "ne": "npi", "nl": "nld", "nn": "nno", "no": "nob",
    "ny": "nya", "oc": "oci", "om": "gaz", "or": "ory", "pa": "pan", "pl": "pol", "ps": "pbt", "pt": "por",
    "qu": "quy", "rn": "run", "ro": "ron", "ru": "rus", "rw": "kin", "sa": "san", "sc": "srd", "sd": "snd",
    "sg": "sag", "si": "sin", "sk": "slk", "sl": "slv", "sm": "smo", "sn": "sna", "so": "som", "sq": "als",
    "sr": "srp", "ss": "ssw", "st": "sot", "su": "sun", "sv": "swe", "sw": "swh", "ta": "tam_Taml", "te": "tel",
    "tg": "tgk", "th": "tha", "ti": "tir", "tk": "tuk", "tl": "tgl", "tn": "tsn", "tr": "tur", "ts": "tso",
    "tt": "tat", "tw": "twi", "ug": "uig", "uk": "ukr", "ur": "urd", "uz": "uzn", "vi": "vie", "wo": "wol",
    "xh": "xho", "yi": "ydd", "yo": "yor", "zh": "zho_Hans", "zh_cn": "zho_Hans", "zh_hans": "zho_Hans",
    "zh_hant": "zho_Hant", "zh_hk": "zho_Hant", "zh_sg": "zho_Hans", "zh_tw": "zho_Hant", "zu": "zul",
}  # fmt: skip


def model_code(language: str, known: Iterable[str], flag: str) -> str:
    """The model's code for a language. No match or several are an error that names the flag."""
    codes = sorted(known)
    for name in names_of(language):
        wanted = name.lower()
        matching = [code for code in codes if code.lower() == wanted or code.lower().startswith(f"{wanted}_")]
        exact = [code for code in matching if code.lower() == wanted]
        if len(exact or matching) == 1:
            return (exact or matching)[0]
        if matching:
            raise ModelError(f"{flag} {language}: the model has several: {', '.join(matching)}")
    raise ModelError(f"{flag} {language}: the model does not know it; it knows {', '.join(codes[:8])}, …")


def names_of(language: str) -> Iterator[str]:
    """Possible codes of a model, most likely first: `de-AT` can be `de`.

    `zh-TW` and `zh-HK` write another script, so they are never taken for `zh`.
    """
    name = language.replace("-", "_")
    yield name
    yield NLLB_NAMES.get(name.lower(), name)
    primary, _, region = name.lower().partition("_")
    if len(region) == 2 and NLLB_NAMES.get(name.lower()) != "zho_Hant":
        yield primary
        yield NLLB_NAMES.get(primary, primary)


def three_letters(language: str) -> str:
    """`fr` is `fra`."""
    return NLLB_NAMES.get(language.lower(), language).split("_")[0]


@lru_cache
def base_language(code: str | None) -> str:
    """`zh_CN`, `zho_Hans` and `zh` are all `zh`: what scoring needs to know."""
    short = (code or "").replace("-", "_").split("_")[0].lower()
    two_letters = {name.split("_")[0]: two for two, name in NLLB_NAMES.items() if len(two) == 2}
    return two_letters.get(short, short)


def best_first(items: Iterable[tuple[str, Item]], wanted: str, other: str) -> list[Item]:
    """Items in the wanted language: exact codes first, then regional codes that do not fit the other language."""
    coded = [(normal_code(code), item) for code, item in items]
    exact = [item for code, item in coded if code == normal_code(wanted)]
    apart = (normal_code(wanted), normal_code(other))
    return exact + [item for code, item in coded if code not in apart and same_language(code, wanted)]


@lru_cache(maxsize=1024)
def normal_code(code: str) -> str:
    """`DE`, `de` and `deu` are `de`; `de_AT` is `de-at`."""
    language, *region = code.replace("_", "-").lower().split("-")
    return "-".join([base_language(language), *region])


def same_language(code: str, wanted: str) -> bool:
    """`de` matches `de-AT`, and `de-AT` matches `de`; `de-AT` does not match `de-CH`."""
    code, wanted = normal_code(code), normal_code(wanted)
    return code == wanted or code.startswith(f"{wanted}-") or wanted.startswith(f"{code}-")


def listed(codes: Iterable[str]) -> str:
    """Language codes as an error message names them."""
    return ", ".join(sorted(filter(None, codes))) or "no language codes"
