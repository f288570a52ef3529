"""What breaks a rule of layering_test.py or size_test.py, by the rule's message: why it may, or who will fix it."""

LAYERING = {}

SIZES = {}
