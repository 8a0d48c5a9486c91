"""The supervisor: starts, watches, finds and stops agents on one machine.

It travels as one file (`workers.bare_metal.package` packs this folder into it) and needs
nothing but Python 3.8 and its standard library, so the same file serves the worker's own
host and machines reached over SSH. Each command is one short process that reads JSON from
its standard input and writes JSON to its standard output.

What it keeps under its root folder (mode 0700, readable by its own user alone):

| path | is |
| --- | --- |
| `names/<agent>.lock` | the lock of a name; every start and stop holds it |
| `names/<agent>.json` | the fence: highest lease token seen; after a stop, the tombstone |
| `agents/<agent>/record.json` | whose it is and what made it; there before any process |
| `agents/<agent>/monitor.lock` | held by the monitor for as long as it lives |
| `agents/<agent>/monitor.json` | which process that is; there before the agent is forked |
| `agents/<agent>/process.json` | which process the agent is; there before it may run |
| `agents/<agent>/exit.json` | how it ended; there once it was reaped |
| `agents/<agent>/token` | its token, until it has read it |
| `agents/<agent>/output.log` | what it printed, the last part |
| `agents/<agent>/state/` | its own: the result it has not delivered |

Where a `kill -9` leaves what, and who handles it:

| killed | leaves | handled by |
| --- | --- | --- |
| start, folder unnamed | a fence, perhaps a folder in `making/` | the next call removes it |
| start, before the fork | a record without processes | start makes it anew, stop removes it |
| start, after the fork | a monitor that goes on by itself | start takes its agent over |
| monitor, agent not released | an agent that reads end of file and exits unrun | stop removes it |
| monitor, later | an agent without a watcher, named on disk | list shows it, stop ends it |
| stop, anywhere | a raised fence and what still lives | the next stop |
"""
