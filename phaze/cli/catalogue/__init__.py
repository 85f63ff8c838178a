"""Verbs that look around: built-in workloads, chips, spaces, networks, frameworks and plans, and what documents
hold.
"""
