"""What Spark hides of tables' properties, and how a session shows it: pure.

Spark shows no property that has a word such as url, token or secret in its value or key. The name and the
directory of a table are values of ours, so for a table ``page_urls`` nothing that was noted could be read.
"""

from __future__ import annotations

HIDDEN = "*********(redacted)"
"""What Spark shows instead of a property's value."""

CORE_CAN_BE_SET = "spark.sql.legacy.setCommandRejectsSparkCoreConfs"
"""The setting that lets a session have its own value of one of Spark's core settings, if it's false."""

SHOWN = {
    CORE_CAN_BE_SET: "false",
    "spark.sql.redaction.options.regex": "(?!)",
    "spark.redaction.regex": "(?!)",
}
"""The settings of a session that shows all of them, in the order in which they can be set."""
