"""A run's claims worked out again, by other means than the search: `dse certify`.

The search prunes by bounds; here architectures that it did not evaluate are evaluated, among them points picked
at random and taken without any bound, and the winner's plan is built and checked anew. Nothing may be better
than the certificate's bound, or undominated by a frontier that is said to be complete. Counts come from
enumerating the space once more.
"""
