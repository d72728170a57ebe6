from __future__ import annotations

import logging
import socket
from typing import Any

import pytest
import typer
from delta.exceptions.base import ProtocolChangedException
from py4j.java_gateway import GatewayParameters, JavaGateway

from tableferry.cli.command import _report_errors
from tableferry.errors import TableferryError, first_line, is_java_gone, is_sparks

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
def test_spark_error_is_reduced_to_its_message(text: str, sentence: str) -> None:
    assert first_line(Exception(text)) == sentence


def call_java_that_is_gone() -> Any:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return JavaGateway(gateway_parameters=GatewayParameters(port=port)).jvm.java.lang.System.nanoTime()


def test_killed_java_process_is_recognised() -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011
        call_java_that_is_gone()
    assert is_java_gone(raised.value)
    wrapped = TableferryError("flow f failed: fix it and run again")
    wrapped.__cause__ = raised.value
    assert is_java_gone(wrapped)
    # A missing server of another kind is no killed Java process.
    assert not is_java_gone(ConnectionRefusedError(111, "Connection refused"))
    assert not is_java_gone(TableferryError("no"))


@pytest.mark.parametrize("wrapped", [False, True])
def test_command_reports_killed_java_process(caplog: pytest.LogCaptureFixture, wrapped: bool) -> None:
    def command() -> None:
        with _report_errors(debug=False):
            try:
                call_java_that_is_gone()
            except Exception as error:
                if wrapped:
                    raise TableferryError("flow f failed: fix it") from error
                raise

    with caplog.at_level(logging.ERROR), pytest.raises(typer.Exit) as left:
        command()
    assert left.value.exit_code == 1
    [message] = [record.message for record in caplog.records if record.name.startswith("tableferry")]
    assert message.startswith("[JAVA_PROCESS_ENDED]")


def test_error_class_of_delta_is_an_error_of_spark() -> None:
    assert is_sparks(ProtocolChangedException("[DELTA_PROTOCOL_CHANGED]"))
    assert not is_sparks(ValueError("[DELTA_PROTOCOL_CHANGED]"))
