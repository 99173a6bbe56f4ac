"""The dispute's worker on Candle's own kernels, in many files as theirs: each part is a class that is plugged in.

Three things are not as in Rust, because the bindings do not expose them, and they are so on both sides of every
comparison: RoPE and RMSNorm are composed of several operations where Candle calls one fused kernel, keys and values
grow by `cat` because nothing can be written in place, and each operation is called from Python. The worker turned
neighbours (`rope_i`); here halves are turned (`rope`), which is as much work and needs no other weights.
"""
