"""Flame graphs: sampled profiles as trees, pictures, their difference, and the canvas that draws them."""
