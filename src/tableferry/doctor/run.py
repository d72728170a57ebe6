"""Run the checks of an environment, and collect their results."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any

from tableferry.amounts import joined
from tableferry.doctor.check import Check, Observation, Outcome, Route, Runs, failure, not_applicable
from tableferry.doctor.check_list import CHECKS
from tableferry.doctor.environment import DoctorOptions, Environment, InPipeline, NoSession
from tableferry.doctor.report import Report, Result, platform_versions
from tableferry.errors import InputError, SessionError, TableferryError, first_line, is_java_gone, is_sparks
from tableferry.progress import task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

ALL_ROUTES = tuple(Route)


def examine(
    options: DoctorOptions | None = None,
    *,
    names: Collection[str] = (),
    routes: Collection[Route] = ALL_ROUTES,
    spark: SparkSession | None = None,
) -> Report:
    """Run checks on scratch objects, remove these, and return the results.

    Args:
        options: What to check; None for the defaults.
        names: The names of the checks to run; empty for all checks of the routes.
        routes: Only checks that one of these routes needs run.
        spark: The session; None to create one when a check needs it.

    Raises:
        InputError: No check has one of the names.
    """
    chosen = choose_checks(names, routes)
    with Environment(options or DoctorOptions(), spark=spark) as env:
        results = tuple(_run(chosen, env))
        versions = platform_versions(env)
    return Report(versions, results, tuple(env.left_over))


def examine_in_pipeline(functions: Any, spark: SparkSession, table: str) -> Report:
    """Run the checks that only a pipeline can make, while it loads its source file.

    They define a scratch streaming table of the pipeline, with the flows of an AUTO CDC migration. Log the
    report, because a pipeline has no output.

    Args:
        functions: The module ``pyspark.pipelines`` or ``dlt``.
        spark: The pipeline's session.
        table: A Delta table with at least one row, which is described and streamed, and never changed.
    """
    chosen = [check for check in CHECKS if check.runs is not Runs.ANYWHERE]
    with Environment(DoctorOptions(), spark=spark, pipeline=InPipeline(functions, table)) as env:
        report = Report(platform_versions(env), tuple(_run(chosen, env)), ())
    for result in report.results:
        _log.info("doctor: %s: %s: %s", result.name, result.outcome, result.seen)
    return report


def choose_checks(names: Collection[str], routes: Collection[Route] = ALL_ROUTES) -> list[Check]:
    """Return the checks with these names, or all checks of the routes, in their order.

    Raises:
        InputError: No check has one of the names.
    """
    if unknown := sorted(set(names) - {check.name for check in CHECKS}):
        known = joined([check.name for check in CHECKS])
        raise InputError("CHECK_UNKNOWN", names=joined(unknown), known=known)
    if names:
        return [check for check in CHECKS if check.name in names]
    return [check for check in CHECKS if set(check.routes) & set(routes)]


def _run(checks: Collection[Check], env: Environment) -> Iterator[Result]:
    for check in checks:
        with task(_log, f"check {check.name}", level=logging.DEBUG):
            started = monotonic()
            observation = observe(check, env)
            seconds = monotonic() - started
        is_failure = observation.outcome is Outcome.FAILED
        remedy = (observation.remedy or check.remedy) if is_failure else ""
        yield Result(
            check.name,
            check.place,
            check.routes,
            check.proves,
            observation.outcome,
            observation.seen.strip().removesuffix("."),
            remedy,
            round(seconds, 3),
        )


def observe(check: Check, env: Environment) -> Observation:
    """Make one check; an error that an environment can cause is a failure."""
    if check.runs is Runs.ONLY_IN_PIPELINE and env.pipeline is None:
        return not_applicable(
            "only a pipeline can try this: call tableferry.doctor.examine_in_pipeline in its source file"
        )
    try:
        return check.observe(env)
    except NoSession as error:
        return not_applicable(f"no Spark session ({error}): see the check spark-session")
    except TableferryError as error:
        return failure(error.message, error.remedy)
    except ModuleNotFoundError as error:
        return failure(f"the package {error.name} isn't installed")
    except Exception as error:
        if is_java_gone(error):
            ended = SessionError("JAVA_PROCESS_ENDED")
            env.lose_session(ended)
            return failure(ended.message, ended.remedy)
        if isinstance(error, OSError):
            return failure(str(error))
        # The class of a pipeline's refusal depends on the runtime, and an update must not end here.
        if env.pipeline is None and not is_sparks(error):
            raise
        return failure(first_line(error))
