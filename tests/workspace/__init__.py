"""A small Databricks workspace on localhost, for tests of code that calls a workspace.

Its state is in memory. It is strict: an unknown route is answered with 501 and recorded, and so is an error
of the workspace itself. The fixture in tests/conftest.py fails a test that ends with either. Answers that
clients depend on are those of Databricks: 401 without the token; 403, 404 and 409 as JSON with an
``error_code``; errors for missing folders.
"""

from tests.workspace.fake import FakeWorkspace

__all__ = ["FakeWorkspace"]
