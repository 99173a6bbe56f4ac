"""What a claim may be about: one module or small package a metric."""
