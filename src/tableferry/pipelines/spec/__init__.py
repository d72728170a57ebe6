"""A project's files, read and checked: every kind of data flow spec becomes the one flow shape."""

from tableferry.pipelines.spec.project import load
from tableferry.pipelines.spec.schema import json_schema

__all__ = ["json_schema", "load"]
