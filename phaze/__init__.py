"""phaze: the best accelerator, and the best way to spread a model over N of them, with a proof."""

__version__ = "0.1.0"
