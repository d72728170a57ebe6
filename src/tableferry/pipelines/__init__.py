"""Pipeline migration: a Delta table, with its history, becomes a streaming table whose flows go on.

`plan`, `check`, `run`, `status`, `verify`, `undo` and `finish` are the whole of it. Where a declarative
pipeline runs the flows, `prepare` takes the place of `run`, and the pipeline's own file defines what
`load_plan` gives it; the other names are for that file. They are loaded at first use, so that specs and plans
can be worked with where pyspark isn't installed.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
