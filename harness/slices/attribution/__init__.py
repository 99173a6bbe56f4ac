"""Architecture or operations? What a speed-up is due to, from a full factorial."""
