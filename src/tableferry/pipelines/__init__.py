"""Pipeline migration: a Delta table with its history becomes a streaming table.

The commands are `plan`, `check`, `run`, `status`, `verify`, `cut_over`, `undo_cutover`, `undo` and `finish`.
If a declarative pipeline runs the flows, `prepare` replaces `run`, and the pipeline's source file defines the
result of `load_plan`. The other names are for that file. Names are imported on first use, because specs and
plans don't need pyspark.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
