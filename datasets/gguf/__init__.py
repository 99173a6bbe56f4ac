"""Reading GGUF files: their fields, tensors and tokenizer."""
