"""Faults on real parts: servers, workers, gateways and agents as processes that are killed.

`stage` sets everything up, `faults` are what can happen to it, `nemesis` makes them happen
by a seed, `checker` compares rows, witnesses and the process table afterwards.
"""
