from tableferry.convert.through_spark import batches as batches
from tableferry.convert.through_spark import entries as entries
from tableferry.convert.through_spark import native as native
from tableferry.convert.through_spark import partitions as partitions
from tableferry.convert.through_spark import switching as switching
from tableferry.convert.through_spark import tasks as tasks
from tableferry.convert.through_spark import undoing as undoing
from tableferry.convert.through_spark import verifying as verifying
