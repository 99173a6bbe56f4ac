"""Functions to calibrate with, one kind of work a file. Each file has

- `REPEATS`: how often `work` does its work on an input, by which more work is planted;
- `work`: the function that is timed. It returns numbers and texts that no name of the file shows up in;
- `fixed` and `mixed`: payloads, of one length and of drawn lengths.

The files are read as text and written anew under other names (see `clothes`): names of the file's own functions,
globals, keys and attributes may change, those of arguments and local variables not.
"""
