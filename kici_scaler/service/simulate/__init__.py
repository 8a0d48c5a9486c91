"""A cluster in simulated time: the demand of a trace, decided as production decides it.

What is the same code: routing, admission with every cap and the room kept for requests that
waited long, warm pools with their schedules and yields, the spawn throttle's rule. What is
assumed: how long starting and ending an agent takes. Nothing fails here.
"""
