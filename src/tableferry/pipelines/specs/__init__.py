"""Read, validate and compile the data flow specs of a project into `flows.Project`."""

from tableferry.pipelines.specs.editor_schema import json_schema
from tableferry.pipelines.specs.project import load

__all__ = ["json_schema", "load"]
