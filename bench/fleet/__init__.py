"""Agents that cost next to nothing: one process plays them all, each on a real connection.

A backend that makes nothing has nobody who would register. The one here tells a fleet of simulated
agents whom to play.
"""
