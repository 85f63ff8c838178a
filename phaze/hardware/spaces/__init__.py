"""Design spaces: axes, constraints, enumeration, the files they are read from, and how many architectures they hold."""
