"""The front: the agent channel, the dispatchers' and operators' HTTP interface, metrics."""
