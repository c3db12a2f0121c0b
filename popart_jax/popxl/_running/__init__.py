"""Running an Ir: its programs, the device, weights on host and device, reports."""
