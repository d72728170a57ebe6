"""Writes to tables that are being migrated: the fence, revoked privileges, and access by catalog."""
