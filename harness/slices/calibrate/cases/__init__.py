"""Functions to calibrate with, one kind of work a file. Each file has

- `once`: the work, on one input. It returns numbers and texts that no name of the file shows up in;
- `made`: an input of some length, from random numbers;
- `LENGTH`: of an input; where lengths are mixed, half as much less or more at most.

The files are read as text, with what they have in common behind them (`known.CASE`), and written anew under other
names (see `clothes`): names of the file's own functions, globals, keys and attributes may change, those of arguments
and local variables not.
"""
