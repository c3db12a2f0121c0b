"""Reports of a session: op list, debug records, modelled profile, memory."""
