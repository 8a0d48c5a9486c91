"""Postgres and Redis from wheels, and the supervised processes of a local installation."""
