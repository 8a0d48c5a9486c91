"""A backend worker: the loop around a backend that takes rows, acts on them and applies.

The use cases take and apply; here is the acting, with a pool of threads for each kind of
step, so that a hung start never delays a destroy.
"""
