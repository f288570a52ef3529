"""What breaks a rule of layering_test.py or size_test.py, by the rule's message: why it may, or who will fix it."""

LAYERING = {}

SIZES = {
    "harness/gpu_check/triton_decode.py: decode_split has more than 60 lines": "one kernel, which its compiler must see whole",
}
