"""The scaler file: reading, checking and turning it into the domain's plain data."""

from kici_scaler.scalers_file.load import LoadedFile, cluster_from_document, load, load_document
from kici_scaler.scalers_file.problems import InvalidScalerFile, Problem, UnreadableScalerFile

__all__ = [
    "InvalidScalerFile",
    "LoadedFile",
    "Problem",
    "UnreadableScalerFile",
    "cluster_from_document",
    "load",
    "load_document",
]
