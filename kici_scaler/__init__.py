"""Ephemeral, single-use CI agents on demand."""
