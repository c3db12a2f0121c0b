"""`SessionOptions`, one row an option."""
