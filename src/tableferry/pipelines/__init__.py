"""Pipeline migration: a Delta table, with its history, becomes a streaming table whose live flows go on.

`plan`, `check`, `run`, `status` and `finish` are the whole of it; where a declarative pipeline runs the
flows, `prepare` and `declare` take the place of `run`. They are loaded at first use, so that specs and plans
can be worked with where pyspark isn't installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tableferry.pipelines.declaring import declare
    from tableferry.pipelines.migrate import check, finish, plan, prepare, run, status
    from tableferry.pipelines.pipeline import DatabricksPipeline, Pipeline, SparkPipeline
    from tableferry.pipelines.reports import FinishReport, RunReport, StatusReport, TargetReport

__all__ = [
    "DatabricksPipeline",
    "FinishReport",
    "Pipeline",
    "RunReport",
    "SparkPipeline",
    "StatusReport",
    "TargetReport",
    "check",
    "declare",
    "finish",
    "plan",
    "prepare",
    "run",
    "status",
]

_ELSEWHERE = {
    "DatabricksPipeline": "pipeline",
    "FinishReport": "reports",
    "Pipeline": "pipeline",
    "RunReport": "reports",
    "SparkPipeline": "pipeline",
    "StatusReport": "reports",
    "TargetReport": "reports",
    "declare": "declaring",
}


def __getattr__(name: str) -> Any:
    if name in __all__:
        module = import_module(f"tableferry.pipelines.{_ELSEWHERE.get(name, 'migrate')}")
        return getattr(module, name)
    raise AttributeError(f"module {__name__} has no attribute {name}")
