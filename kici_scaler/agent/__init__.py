"""The reference agent: registers, runs one job, reports, exits.

Nothing in this package but `build` imports anything except the standard library and
`websockets`, so that it also runs from one zipapp file on a machine that has only Python.
"""

AGENT_VERSION = "0.1.0"
"""What `register` tells the gateway; the version of the distribution it came from."""
