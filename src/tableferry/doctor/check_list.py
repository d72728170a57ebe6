"""All checks of an environment, in the order in which they run."""

from __future__ import annotations

from tableferry.doctor.check import Check
from tableferry.doctor.machine_checks import MACHINE_CHECKS

CHECKS: tuple[Check, ...] = (*MACHINE_CHECKS,)
"""All checks. A check that needs a session is after `spark-session`, which reports why none starts."""
