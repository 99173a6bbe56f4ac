"""Is this machine fit to measure on, and what makes it noisy?"""
