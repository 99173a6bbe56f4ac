"""From effects to a verdict on each part of each claim."""
