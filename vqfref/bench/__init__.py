"""`vqfref bench`: how quick the plain and the quick versions are, side by side and beside other people's.

Measuring (measure.py), what is measured (operations.py), what others have (peers.py), the picture (picture.py). Nothing
else imports this room; numpy and the like are imported in peers.py alone, and only where they are installed.
"""
