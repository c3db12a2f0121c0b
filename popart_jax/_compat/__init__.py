"""Everything that differs between JAX releases, and what other packages need to be told, lives here."""
