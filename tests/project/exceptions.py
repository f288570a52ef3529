"""Files that break a rule of size_test.py, by the rule's message: why it may, or who will fix it."""

SIZES = {}
