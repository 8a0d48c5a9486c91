"""`python -m tests.e2e.container.probe TREE`: whether both runtimes can run a container here.

Exit code 0 when they can; 3, with the reason, when this machine does not let them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from docker import APIClient
from docker.errors import DockerException
from requests.exceptions import RequestException

from tests.e2e.container.engines import DockerEngine, PodmanEngine, TestEngine
from tests.e2e.container.images import BASE, import_base

UNUSABLE = 3
_PATIENCE = 60


def _try(engine: TestEngine, tree: Path) -> str | None:
    """Why it runs no container, or None."""
    try:
        engine.start()
        api = engine.client(_PATIENCE)
        import_base(api, tree)
        return _run_one(api)
    except (AssertionError, DockerException, RequestException, OSError) as error:
        return f"{error}\n{engine.log()}"
    finally:
        engine.close()


def _run_one(api: APIClient) -> str | None:
    create: Callable[..., dict[str, str]] = api.create_container
    made = create(BASE, ["sh", "-c", "exit 7"], host_config=api.create_host_config(pids_limit=64))
    api.start(made["Id"])
    code = api.wait(made["Id"], timeout=_PATIENCE)["StatusCode"]
    api.remove_container(made["Id"], force=True)
    return None if code == 7 else f"a container that exits with 7 exited with {code}"


def main(tree: Path) -> int:
    """Try each; the exit code."""
    for engine in (DockerEngine(), PodmanEngine()):
        problem = _try(engine, tree)
        if problem is not None:
            print(f"{engine.runtime} runs no container here: {problem}", file=sys.stderr)
            return UNUSABLE
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
