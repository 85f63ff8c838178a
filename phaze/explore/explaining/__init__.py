"""Why an answer is what it is: what binds it, where its time goes, and what more of anything would buy."""
