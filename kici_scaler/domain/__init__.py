"""Decisions over plain data: no clock, row, socket or framework in here."""
