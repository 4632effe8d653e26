"""Language codes: what a person writes (`de`), and what a multilingual model calls it (`de_DE`, `deu_Latn`)."""

from collections.abc import Iterable

from knnmt.errors import ModelError

# ISO 639-1 to the ISO 639-3 codes that NLLB uses, with the script where there are several.
NLLB_NAMES = {
    "af": "afr", "am": "amh", "ar": "arb_Arab", "az": "azj", "be": "bel", "bg": "bul", "bn": "ben_Beng",
    "bs": "bos", "ca": "cat", "cs": "ces", "cy": "cym", "da": "dan", "de": "deu", "el": "ell", "en": "eng",
    "eo": "epo", "es": "spa", "et": "est", "eu": "eus", "fa": "pes", "fi": "fin", "fr": "fra", "ga": "gle",
    "gl": "glg", "gu": "guj", "ha": "hau", "he": "heb", "hi": "hin", "hr": "hrv", "hu": "hun", "hy": "hye",
    "id": "ind", "ig": "ibo", "is": "isl", "it": "ita", "ja": "jpn", "jv": "jav", "ka": "kat", "kk": "kaz",
    "km": "khm", "kn": "kan", "ko": "kor", "ky": "kir", "lb": "ltz", "lo": "lao", "lt": "lit", "lv": "lvs",
    "mk": "mkd", "ml": "mal", "mn": "khk", "mr": "mar", "ms": "zsm", "mt": "mlt", "my": "mya", "nb": "nob",
    "ne": "npi", "nl": "nld", "nn": "nno", "no": "nob", "pa": "pan", "pl": "pol", "ps": "pbt", "pt": "por",
    "ro": "ron", "ru": "rus", "si": "sin", "sk": "slk", "sl": "slv", "so": "som", "sq": "als", "sr": "srp",
    "sv": "swe", "sw": "swh", "ta": "tam_Taml", "te": "tel", "tg": "tgk", "th": "tha", "tl": "tgl",
    "tr": "tur", "uk": "ukr", "ur": "urd", "uz": "uzn", "vi": "vie", "xh": "xho", "yo": "yor", "zh": "zho_Hans",
    "zu": "zul",
}  # fmt: skip


def model_code(language: str, known: Iterable[str], flag: str) -> str:
    """The model's own code for a language; an error that names the flag where there is none or more than one."""
    codes = sorted(known)
    wanted = language.replace("-", "_")
    for name in (wanted, NLLB_NAMES.get(wanted.lower(), wanted)):
        matching = [code for code in codes if code == name or code.startswith(f"{name}_")]
        if name in matching:
            return name
        if len(matching) == 1:
            return matching[0]
        if matching:
            raise ModelError(f"{flag} {language}: the model has several: {', '.join(matching)}")
    raise ModelError(f"{flag} {language}: the model does not know it; it knows {', '.join(codes[:8])}, …")


def base_language(code: str | None) -> str:
    """`zh_CN`, `zho_Hans` and `zh` are all `zh`: what scoring needs to know."""
    short = (code or "").replace("-", "_").split("_")[0].lower()
    three_letters = {name.split("_")[0]: two for two, name in NLLB_NAMES.items()}
    return three_letters.get(short, short)
