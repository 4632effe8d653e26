"""What the files of an index are called."""


def trained_name(name: str) -> str:
    """The file beside an index that holds only its trained part."""
    return name.replace(".faiss", ".trained.faiss", 1)


def lists_name(name: str) -> str:
    """The file beside an index that holds its codes and ids, cluster by cluster."""
    return name.replace(".faiss", ".lists", 1)
