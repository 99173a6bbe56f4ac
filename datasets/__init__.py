"""What is measured on: model shapes, workloads, checkpoints, tokenizer, prompts, and the cache that keeps them."""
