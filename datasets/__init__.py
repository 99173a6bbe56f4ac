"""What is measured on: model shapes, workloads, checkpoints, tokenizer, prompts.

Only `checkpoints` imports torch.
"""
