"""Machines that a customer's own workflow provides: events out, and nothing made here.

Every event to a target is a row of its own; this package tries them: webhooks over HTTP,
signed and kept away from private networks, workflows through the dispatcher's router.
"""
