"""The model against measured hardware."""
