"""Runs the real server on small ext4 volumes, injects faults below and around it, and checks every answer."""
