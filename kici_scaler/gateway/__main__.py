"""`python -m kici_scaler.gateway`: one gateway process, configured by its environment."""

from __future__ import annotations

import logging
import sys

from pydantic import ValidationError

from config.logs import configure_logging
from config.settings import Settings
from kici_scaler.errors import ExitCode, KiciError
from kici_scaler.gateway.serve import serve


def main() -> int:
    """Serve until told to stop; returns the exit code."""
    try:
        settings = Settings()
    except ValidationError as error:
        for each in error.errors(include_input=False, include_url=False):
            name = "_".join(str(part) for part in each["loc"]).upper()
            sys.stderr.write(f"KICI_{name}: {each['msg']}\n")
        return ExitCode.INVALID
    configure_logging(settings, "gateway")
    for talkative in ("alembic", "uvicorn"):
        logging.getLogger(talkative).setLevel(logging.WARNING)
    try:
        serve(settings)
    except KiciError as error:
        sys.stderr.write(f"{error}\n")
        if error.hint:
            sys.stderr.write(f"  {error.hint}\n")
        return error.exit_code
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
