"""Every error that a user can cause, as one tree.

KnnmtError
├── CorpusError     parallel text that cannot be read
├── ModelError      a model that cannot be loaded or used
├── StoreError      a datastore that is missing, broken, or of another model
└── SettingsError   a value outside its range

The message names the file or flag and says what to do. The command line prints it as one line and exits with 2.
"""


class KnnmtError(Exception):
    """Something that the caller can put right."""


class CorpusError(KnnmtError):
    """Parallel text that cannot be read."""


class ModelError(KnnmtError):
    """A model that cannot be loaded or used."""


class StoreError(KnnmtError):
    """A datastore that is missing, broken, or of another model."""


class SettingsError(KnnmtError):
    """A value outside its range."""
