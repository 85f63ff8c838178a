"""Money and carbon: what making and running a cluster costs and emits, from figures that each carry their source."""
