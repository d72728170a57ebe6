"""All checks of an environment, in the order in which they run."""

from __future__ import annotations

from tableferry.doctor.check import Check
from tableferry.doctor.fleet_checks import FLEET_CHECKS
from tableferry.doctor.machine_checks import MACHINE_CHECKS
from tableferry.doctor.pipeline_checks import PIPELINE_CHECKS
from tableferry.doctor.spark_checks import SPARK_CHECKS
from tableferry.doctor.state_checks import STATE_CHECKS
from tableferry.doctor.unity_checks import UNITY_CHECKS

CHECKS: tuple[Check, ...] = (
    *MACHINE_CHECKS,
    *STATE_CHECKS,
    *SPARK_CHECKS,
    *FLEET_CHECKS,
    *UNITY_CHECKS,
    *PIPELINE_CHECKS,
)
"""All checks. A check that needs a session is after `spark-session`, which reports why none starts."""
