from .statements import Reference as Reference
from .statements import SqlglotError as SqlglotError
from .statements import find_references as find_references
from .statements import replace_references as replace_references
