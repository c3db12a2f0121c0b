"""Adapters for third-party packages: names that differ between JAX releases, and changes to slow imports."""
