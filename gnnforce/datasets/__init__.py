"""Files to batches: readers, labels, splits, statistics, loaders."""
