"""Checkpoints in llama.cpp's format: read as a Llama, with their tokenizer, and checks of that."""
