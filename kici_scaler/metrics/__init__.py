"""What is measured: every figure for Prometheus, declared once, and a tally for rare events.

Figures are of the cluster and live in the database, so each gateway tells the same, whichever
processes come and go, and none of them needs files that processes share:

- gauges are counted from rows when somebody asks;
- counters that must not miss anything are rows appended in the transaction they count
  (`kici_scaler.store.counts`), folded now and then;
- counters of what leaves no row (a lock that was not got, a request refused once more) are added
  up in their process and appended every few seconds, so that they cost no commit of their own
  on the way of a request. A process that is killed takes up to that much of them with it.
"""

from kici_scaler.metrics.declared import METRICS
from kici_scaler.metrics.metric import Carried, Kind, Metric
from kici_scaler.metrics.tally import TALLY, Tally, count

__all__ = ["METRICS", "TALLY", "Carried", "Kind", "Metric", "Tally", "count"]
