"""Several hosts on one study: claims of evaluations that all of them see, and trials that one of them writes."""
