"""The container backend under the conformance suite, on Docker and on Podman."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from docker import APIClient

from kici_scaler.domain.scalers import BackendType, LabelSet, Scaler
from tests.conformance.harness import Harness
from tests.e2e.container.engines import TestEngine
from tests.e2e.container.images import BASE, build
from tests.support.waiting import eventually
from workers.contract import ComputeRef, SpawnOrder

_AGENT = """\
trap "exit 143" TERM
echo "$KICI_AGENT_ID" >> /harness/witness
rm "$KICI_AGENT_TOKEN_FILE"
echo "hello $KICI_AGENT_ID"
mkfifo "/harness/$KICI_AGENT_ID.door"
read word < "/harness/$KICI_AGENT_ID.door"
echo "last words"
exit 3
"""

IMAGE = "localhost/kici-e2e/harness:1"

_RECIPE = f"""\
FROM {BASE}
ENTRYPOINT ["/bin/sh", "/harness/agent.sh"]
"""


def make_harness_image(api: APIClient) -> None:
    """The image whose program each harness brings as a volume."""
    build(api, IMAGE, _RECIPE, {})


class ContainerHarness(Harness):
    """The runtime's own word, and a file that each agent signs, are the witness."""

    backend_type = "container"
    kill_rounds = 12

    def __init__(self, folder: Path, engine: TestEngine) -> None:
        super().__init__(folder)
        self.engine = engine
        self._shared = folder / "shared"
        self._shared.mkdir()
        (self._shared / "witness").touch()
        (self._shared / "agent.sh").write_text(_AGENT)

    def ambient(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"]}

    def label_set(self) -> LabelSet:
        options = {
            "image": IMAGE,
            "volumes": (f"{self._shared}:/harness",),
        }
        return LabelSet(0, ("linux", "x64"), options=options)

    def scaler(self) -> Scaler:
        return Scaler(
            "pool", BackendType.CONTAINER, 10, (self.label_set(),), options=self.engine.options
        )

    def order(self, agent_id: str, token: int = 1, **more: object) -> SpawnOrder:
        made = super().order(agent_id, token, **more)  # type: ignore[arg-type]  # passed on
        return replace(made, options=self.engine.options)

    def ref(self, agent_id: str, token: int) -> ComputeRef:
        return replace(super().ref(agent_id, token), options=self.engine.options)

    def starts(self, agent_id: str) -> int:
        return (self._shared / "witness").read_text().split().count(agent_id)

    def living(self, agent_id: str) -> int:
        return len(self._containers(agent_id, running_only=True))

    def end(self, agent_id: str) -> None:
        door = self._shared / f"{agent_id}.door"
        eventually(door.is_fifo, why=f"{agent_id} did not come up")
        door.write_text("go\n")
        eventually(lambda: not self.living(agent_id), why=f"{agent_id} did not end")

    def kept(self) -> Iterator[tuple[str, bytes]]:
        for each in self.folder.rglob("*"):
            if each.is_file():
                yield str(each), each.read_bytes()
        api = self.engine.client()
        for found in self._ours(api):
            yield found, repr(api.inspect_container(found)).encode()
        api.close()

    def close(self) -> None:
        api = self.engine.client()
        for found in self._ours(api):
            api.remove_container(found, force=True, v=True)
        api.close()

    def _ours(self, api: APIClient) -> list[str]:
        listing = api.containers(
            all=True, filters={"label": [f"kici-installation={self.installation_id}"]}
        )
        return [each["Id"] for each in listing]

    def _containers(self, agent_id: str, *, running_only: bool) -> list[str]:
        api = self.engine.client()
        listing = api.containers(
            all=not running_only, filters={"label": [f"kici-agent-id={agent_id}"]}
        )
        api.close()
        return [each["Id"] for each in listing]
