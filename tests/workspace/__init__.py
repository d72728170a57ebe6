"""A small Databricks workspace on localhost, for everything of ours that talks to one.

Its state is in memory. It's strict: a route it doesn't know gets 501 and is remembered, and so is what breaks
in it; the fixture in tests/conftest.py fails a test that ends with either. It says what Databricks says where
somebody looks: 401 without the token, 403, 404 and 409 as JSON with an ``error_code``, folders that must be
there.
"""

from tests.workspace.fake import FakeWorkspace

__all__ = ["FakeWorkspace"]
