"""Hashes, ciphers and signatures, one standard a file.

Python can't be constant-time: the time that this code takes, and the memory that it leaves behind, tell an observer
on the same machine about the keys. Use it to check files and implementations, not where an attacker can measure it.
"""
