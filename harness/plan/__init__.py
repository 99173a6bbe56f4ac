"""From what was asked to what is measured."""
