"""Machines reached by SSH: connections, what is put there, and asking their supervisor.

| module | does |
| --- | --- |
| `target` | where a machine is and how it is known, as the scaler file says it |
| `host_keys` | which keys are trusted; what a refusal tells an operator |
| `dial` | one connection, each phase within its time, through a jump host where there is one |
| `link` | the connections to one machine: opened when needed, shared, bounded, with backoff |
| `command` | one command: input, bounded output, exit status, by a deadline |
| `remote` | what runs there before the supervisor does: checking and placing files |
| `host` | the supervisor of such a machine, as the backend asks it |

Nothing is opened before it is used, so a process that forks shares no connection; one that
was forked while connections were open forgets them.
"""
