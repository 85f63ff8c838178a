"""The local page of `dse ui`: runs, questions, designs and plans in a browser of this machine alone."""
