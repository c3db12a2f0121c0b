"""The PopART facade: sessions, data flow, step I/O, options, devices."""
