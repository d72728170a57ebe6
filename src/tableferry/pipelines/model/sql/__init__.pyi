from .statements import Reference as Reference
from .statements import SqlglotError as SqlglotError
from .statements import references as references
from .statements import renamed as renamed
