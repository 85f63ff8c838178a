"""From what a user names, in words, files and quantities, to what is computed: for the command line and for Python."""
