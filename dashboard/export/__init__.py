"""The evidence of a claim as a file: HTML, SVG or PNG."""
