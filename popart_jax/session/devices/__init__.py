"""Devices, the pool of emulated IPUs, and the binding of a session's engine to its device."""
