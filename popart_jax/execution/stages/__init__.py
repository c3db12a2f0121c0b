"""Model parallelism: a step cut into stages that run on devices of their own."""
