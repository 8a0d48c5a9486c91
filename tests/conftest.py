"""Fixtures that any test may use."""

pytest_plugins = [
    "tests.support.servers",
    "tests.support.rows",
    "tests.support.order",
    "tests.faults.reporting",
]
