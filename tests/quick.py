"""Settings of Spark and options of Java that save a third of the CPU time of small queries.

The results are the same. A soak uses Spark's defaults, as users do.
"""

from tests import soak

from tableferry.testing import SMALL_TABLES

# A query over a few rows takes longer to be compiled than to be interpreted.
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

_QUICK = INTERPRETED | {
    # In other time zones than UTC Delta reads its whole log again after each commit, to verify the files that
    # it caches, because it writes timestamps before 1883 wrongly there.
    "spark.databricks.delta.allFilesInCrc.verificationMode.forceOnNonUTC.enabled": "false",
}

SETTINGS = {} if soak.SOAKING else _QUICK

# A soak is long enough for the optimizing compiler, and kills processes while they write.
_SOAK_OPTIONS = (
    "-XX:+UseSerialGC -XX:ReservedCodeCacheSize=480m -XX:MetaspaceSize=1g -XX:InitialRAMPercentage=12.5 "
    "-Djdk.lang.Process.launchMechanism=VFORK -Dderby.system.durability=test"
)
JAVA_OPTIONS = _SOAK_OPTIONS if soak.SOAKING else SMALL_TABLES
