"""Starts the agent in a job's own image, trusting whom its own image trusts as well.

A job's image may hold no authorities at all, and then no gateway's certificate could be
verified. They are added inside this process only: no variable tells of them, so the job's
programs see what their image has.
"""

from __future__ import annotations

import runpy
import ssl
import sys
from pathlib import Path

HERE = Path(__file__).parent


def trust_also(authorities: Path) -> None:
    """From now on every default TLS context of this process trusts these authorities too."""
    load = ssl.SSLContext.load_default_certs

    def load_all(context: ssl.SSLContext, purpose: ssl.Purpose = ssl.Purpose.SERVER_AUTH) -> None:
        load(context, purpose)
        context.load_verify_locations(authorities)

    ssl.SSLContext.load_default_certs = load_all  # type: ignore[assignment, method-assign]  # so meant


if __name__ == "__main__":
    if (HERE / "certificates.pem").is_file():
        trust_also(HERE / "certificates.pem")
    sys.argv = [str(HERE / "agent.pyz")]
    runpy.run_path(sys.argv[0], run_name="__main__")
