"""A project's files, read and checked: every kind of data flow spec becomes the one flow shape."""

from tableferry.pipelines.specs.project import load
from tableferry.pipelines.specs.schema import json_schema

__all__ = ["json_schema", "load"]
