"""Every error that a user can cause, as one tree.

KnnmtError
├── ClusterError    a Ray cluster, or a part of one, that does not answer
├── CorpusError     parallel text that cannot be read
├── DocumentError   a document that cannot be read or written
├── ModelError      a model that cannot be loaded or used
├── StoreError      a datastore that is missing, broken, or of another model
└── SettingsError   a value outside its range

The message names the file or flag and says what to do. The command line prints it as one line and exits with 2.
"""


class KnnmtError(Exception):
    """An error that the caller can fix."""


class ClusterError(KnnmtError):
    """A Ray cluster, or one of its machines, does not answer."""


class CorpusError(KnnmtError):
    """Parallel text cannot be read or written."""


class DocumentError(KnnmtError):
    """A document cannot be read or written."""


class ModelError(KnnmtError):
    """A model cannot be loaded or used."""


class StoreError(KnnmtError):
    """A datastore is missing or damaged, or belongs to another model."""


class SettingsError(KnnmtError):
    """A setting or option has a value that is not allowed."""
