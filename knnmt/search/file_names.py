"""What the files of an index are called."""


def trained_name(name: str) -> str:
    """The file beside an index that holds only what the index learned."""
    return name.replace(".faiss", ".trained.faiss", 1)
