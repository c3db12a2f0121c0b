"""Everything that differs between JAX releases lives here."""
