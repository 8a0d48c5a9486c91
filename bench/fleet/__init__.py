"""Agents that cost next to nothing: one process plays them all, each on a real connection.

The null backend makes nothing, so nobody would register. The backend here is that one, and
besides tells a fleet of simulated agents whom to play.
"""
