"""The mutation check: take one guard away, see a test turn red, put it back."""
