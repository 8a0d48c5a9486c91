"""The compose file as a whole, on a Docker of its own."""
