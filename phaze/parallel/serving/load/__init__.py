"""Load as it is: recorded requests, prompts that begin alike, and tokens that a draft guesses."""
