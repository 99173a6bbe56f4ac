"""The machine and its processes: fingerprint, locks, signals."""
