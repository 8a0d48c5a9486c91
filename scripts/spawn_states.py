"""The page of a spawn's states: a diagram and two tables, from the transition table itself."""

from __future__ import annotations

from collections.abc import Iterator

from kici_scaler.domain.spawn import EDGES, STAYS, Edge, SpawnState
from kici_scaler.domain.windows import Windows

BEGIN = "<!-- states: written by `make docs` -->"
END = "<!-- end of states -->"

_HEAD = """\
# The states of a spawn

A spawn is the row that stands for an agent a scaler makes, from its reservation to the
confirmed end of its compute. Each arrow below is one conditional update that carries its
consequences (outcome, failure count, backoff, the job's next state) in the same transaction:
whoever wins the row owns them. There are no other ways.
"""

_STAYS = """\
## How long a state may last

Every live row that awaits something is looked at when it is due. Nobody is judged for a time
in which nobody could observe: an outage moves every deadline by its length. The bounds are
live settings (`kici-scaler settings set`).

| state | means | waits for | deadline | when overdue | settings |
| --- | --- | --- | --- | --- | --- |
"""

_EDGES = """\
## Transitions

The deadline is the one that stands until this way, or another from the same state, is taken.

| from | to | by whom | when | deadline | overdue |
| --- | --- | --- | --- | --- | --- |
"""


def spawn_states_page() -> str:
    """The whole page."""
    stays = "\n".join(_stay_row(state) for state in SpawnState)
    edges = "\n".join(_edge_row(edge) for edge in EDGES)
    return f"{_HEAD}\n{spawn_diagram()}\n{_STAYS}{stays}\n\n{_EDGES}{edges}\n"


def with_spawn_diagram(page: str) -> str:
    """A page with its diagram written anew, between the two marks it stands between."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{spawn_diagram()}{END}{after}"


def spawn_diagram() -> str:
    """The diagram, as a fenced block."""
    return "\n".join(["```mermaid", "stateDiagram-v2", *_arrows(), "```"]) + "\n"


def _arrows() -> Iterator[str]:
    yield f"    [*] --> {SpawnState.RESERVED}: admission reserves"
    for edge in EDGES:
        target = "[*]" if edge.target is None else edge.target
        yield f"    {edge.source} --> {target}: {edge.why.replace(';', ',')}"


def _edge_row(edge: Edge) -> str:
    target = "(gone)" if edge.target is None else f"`{edge.target}`"
    cells = (target, ", ".join(edge.actors), edge.why, edge.stay.deadline, edge.stay.overdue)
    return f"| `{edge.source}` | {' | '.join(cells)} |"


def _stay_row(state: SpawnState) -> str:
    stay = STAYS[state]
    windows = ", ".join(f"`{key}` ({getattr(Windows(), key):g})" for key in stay.windows)
    cells = (_MEANINGS[state], stay.waits_for, stay.deadline, stay.overdue, windows)
    return f"| `{state}` | {' | '.join(cells)} |"


_MEANINGS = {
    SpawnState.RESERVED: "capacity is held, nothing exists",
    SpawnState.SPAWNING: "the compute is being created",
    SpawnState.BOOTING: "the compute exists",
    SpawnState.IDLE: "its agent is known and runs no job",
    SpawnState.BUSY: "its job was accepted and committed",
    SpawnState.DESTROYING: "its end was decided",
    SpawnState.QUARANTINED: "its end could not be confirmed for too long",
}
