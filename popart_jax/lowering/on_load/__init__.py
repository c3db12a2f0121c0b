"""Work on weights that is done once, when they are loaded, and not at each run."""
