"""What this project measured itself: the script that measures a GPU, and tables that it wrote."""
