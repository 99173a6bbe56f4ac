"""What came out, on pages: reads `harness.store` and `harness.judge`, measures nothing, never imports torch."""
