from sqlglot.errors import SqlglotError as SqlglotError

from tableferry.pipelines.sql.statements import Reference as Reference
from tableferry.pipelines.sql.statements import references as references
from tableferry.pipelines.sql.statements import renamed as renamed
