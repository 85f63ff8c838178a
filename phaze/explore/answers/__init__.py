"""From a request to its answer: the main job in all its forms."""
