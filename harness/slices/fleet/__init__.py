"""Several machines: work sent to a cluster's nodes, the folder of such a run, and verdicts over machines."""
