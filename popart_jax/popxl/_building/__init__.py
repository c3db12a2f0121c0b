"""Building graphs: contexts, tensors, variables, and how an operator comes into being."""
