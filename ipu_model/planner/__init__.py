"""The planners of PopLibs as pure functions: how one operation is spread over the tiles, and what it costs there."""
