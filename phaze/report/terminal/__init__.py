"""Answers as text: tables that fit a terminal of 80 columns."""
