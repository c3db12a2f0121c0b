"""Starting a program as several processes of one `jax.distributed` job, and watching over them."""
