"""Rows: one module an aggregate, and the section that admission runs in."""
