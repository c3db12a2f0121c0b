"""The parts that are C++ in upstream: enums, operator classes and read-mostly views of the one IR."""
