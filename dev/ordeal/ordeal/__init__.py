"""Runs the real server on small ext4 volumes, breaks what is below and around it, and checks every answer."""
