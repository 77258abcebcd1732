"""Corpora: reading, filtering, subword pieces, storage and batches."""
