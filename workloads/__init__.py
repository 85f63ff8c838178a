"""Built-in models, one YAML file each."""
