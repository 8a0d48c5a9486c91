"""A cloud of one computer: a webhook receiver that boots and tears down "machines".

Each machine is a local process that runs the reference agent. What matters is how events are
treated, which is the same for a real cloud; `docs/event-scalers.md` tells why.
"""
