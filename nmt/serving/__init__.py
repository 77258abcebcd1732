"""`nmt serve`: a model behind HTTP."""
