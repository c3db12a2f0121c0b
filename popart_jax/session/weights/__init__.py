"""Host copies of a session's variables: reading, writing, model files, checkpoints."""
