"""Commands about programs in several processes: what agrees, what is lost and found, what streaming and parts gain."""
