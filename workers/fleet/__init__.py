"""Machines that a worker reaches: which of them it drives, and each one's own life.

A machine of a fleet has a row, queues and pumps of its own, as a worker's own host has, so that
placement, throttle, drain and inventory work in the same way. What is different is that the
worker lives somewhere else: it claims the machine first, asks it for a sign of life every few
seconds, and tells the rest of the cluster what came of that.
"""
