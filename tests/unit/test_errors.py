from __future__ import annotations

import pytest

from tableferry.errors import first_line

NOT_FOUND = "[TABLE_OR_VIEW_NOT_FOUND] The table or view `t` cannot be found. Verify the spelling"
FRAMES = """Traceback (most recent call last):
  File "/somewhere/worker.py", line 84, in main
    func(batch_df, batch_id)
    ^^^^^^^^^^^^^^^^^^^^^^^^
"""
IN_A_BATCH = (
    "[STREAM_FAILED] Query [id = 1] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] "
    "An error occurred in the user provided function in foreach batch sink. Reason: Found error inside "
    f"foreachBatch Python process: {FRAMES}"
)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"{NOT_FOUND}. SQLSTATE: 42P01; line 1 pos 14;\n'Project [*]\n", NOT_FOUND),
        (
            f"An error occurred while calling o1.sql.\n: org.apache.spark.SparkException: {NOT_FOUND}.",
            NOT_FOUND,
        ),
        (
            "[STREAM_FAILED] Query [id = 1] terminated with exception: a file is gone SQLSTATE: XXKST\n",
            "a file is gone",
        ),
        (
            f"\n  An exception was thrown from the Python worker.\n{FRAMES}KeyError: 'k'\n\n\tat x",
            "KeyError: 'k'",
        ),
        (
            "<_MultiThreadedRendezvous of RPC that terminated with:\n\tstatus = StatusCode.UNKNOWN\n"
            '\tdetails = "a class is gone"\n\tdebug_error_string = "UNKNOWN:a class is gone"\n>',
            "a class is gone",
        ),
        (f"{IN_A_BATCH}pyspark.errors.exceptions.connect.AnalysisException: {NOT_FOUND}.\nmore", NOT_FOUND),
    ],
    ids=[
        "Spark's own",
        "by py4j",
        "of a stream",
        "of a Python worker",
        "of a server",
        "of a batch on a server",
    ],
)
def test_the_sentence_of_a_spark_error(text: str, sentence: str) -> None:
    assert first_line(Exception(text)) == sentence
