"""Settings of Spark that leave its answers as they are and save a third of what small queries cost.

A soak goes without them, as users do.
"""

from tests import soak

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

# A query over a handful of rows takes longer to be compiled than to be interpreted.
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

_QUICK = INTERPRETED | {
    # Without Hadoop's native library, whoever renames a local file by its FileContext starts eight processes
    # (`readlink`): a commit of Delta does so once, a micro-batch three times or more. These two rename by
    # Hadoop's FileSystem, which asks Java. Neither keeps two processes from writing the same file at once.
    "spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore",
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
    # In other time zones than UTC Delta reads its whole log again after each commit, to make sure of the
    # files that it keeps in mind, for timestamps before 1883 are written wrongly there.
    "spark.databricks.delta.allFilesInCrc.verificationMode.forceOnNonUTC.enabled": "false",
    # A third of what Spark's Java does in tests is to read the same rows of Derby again. The cache is right
    # while one process uses the metastore, and Derby admits only one.
    "spark.hadoop.datanucleus.cache.level2": "true",
    "spark.hadoop.datanucleus.cache.level2.type": "soft",
}

SETTINGS = {} if soak.SOAKING else _QUICK

# Tests run many small queries, each with code of its own. The optimising compiler and a concurrent collector
# cost them a third; so does a code cache of the usual 48 MB, which is swept all the time.
# The metastore's database needn't survive the machine, so its commits don't wait for the disk.
# Hadoop starts `chmod` for each local file that it makes: that takes less without a helper process of Java's.
# A soak is long enough for the optimising compiler.
# Only collections of the whole heap enlarge the heap and the room for classes, so both start large: the heap
# with an eighth of the memory, or all that Spark's driver may have. The jars' bytecode needs no verification.
# The metastore throws and catches thousands of exceptions, from stacks of three hundred calls.
JAVA_OPTIONS = (
    ("" if soak.SOAKING else "-XX:TieredStopAtLevel=1 ")
    + "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote -XX:MaxJavaStackTraceDepth=64 "
    "-XX:+UseSerialGC -XX:ReservedCodeCacheSize=480m -XX:MetaspaceSize=1g -XX:InitialRAMPercentage=12.5 "
    "-Djdk.lang.Process.launchMechanism=VFORK -Dderby.system.durability=test"
)
