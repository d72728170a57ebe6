"""Settings of Spark that leave its answers as they are and save a third of what small queries cost.

A soak goes without them, as users do.
"""

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

QUICK = {
    # A query over a handful of rows takes longer to be compiled than to be interpreted.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Without Hadoop's native library, whoever renames a local file by its FileContext starts eight processes
    # (`readlink`): a commit of Delta does so once, a micro-batch three times or more. These two rename by
    # Hadoop's FileSystem, which asks Java. Neither keeps two processes from writing the same file at once.
    "spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore",
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
}
