"""Spark settings that show redacted table properties.

Spark redacts each property whose key or value contains a word such as url, token or secret. Tableferry stores
table names and directories in properties, so it couldn't read them for a table named ``page_urls``.
"""

from __future__ import annotations

HIDDEN = "*********(redacted)"
"""The text that Spark shows instead of a property's value."""

CORE_CAN_BE_SET = "spark.sql.legacy.setCommandRejectsSparkCoreConfs"
"""The setting that allows a session to change Spark's core settings, if it is false."""

SHOWN = {
    CORE_CAN_BE_SET: "false",
    "spark.sql.redaction.options.regex": "(?!)",
    "spark.redaction.regex": "(?!)",
}
"""The settings of a session that shows all property values; they must be set in this order."""
