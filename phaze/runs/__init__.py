"""Run directories: result document, manifest, designs."""
