"""Memory of an iteration: what devices hold, what runs again, what hosts keep."""
