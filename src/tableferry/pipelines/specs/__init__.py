"""Read, validate and compile the data flow specs of a project into `flows.Project`."""

from tableferry.pipelines.specs.project import load
from tableferry.pipelines.specs.spec_models import json_schema

__all__ = ["json_schema", "load"]
