"""The training loop: batches, objectives, optimizer, statistics, memory estimates, distributed runs."""
