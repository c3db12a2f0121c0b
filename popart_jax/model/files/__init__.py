"""Reading and writing of model files, external data, and other formats."""
