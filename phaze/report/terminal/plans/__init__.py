"""Tables of plans, for training and for serving, and of chips for a service."""
