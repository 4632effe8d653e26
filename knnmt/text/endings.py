"""The file endings of memories. This module imports nothing, so that help texts can list them at once."""

READ_AS_MEMORY = (".tmx", ".xlf", ".xliff", ".po", ".tsv", ".csv", ".jsonl")
WRITTEN_AS_MEMORY = (".tmx", ".tsv", ".csv", ".jsonl")


def either_of(names: tuple[str, ...]) -> str:
    """`.tmx, .tsv or .csv`."""
    return f"{', '.join(names[:-1])} or {names[-1]}"
