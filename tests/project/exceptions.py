"""What breaks a rule of layering_test.py or size_test.py, by the rule's message: why it may, or who will fix it."""

LAYERING = {
    "variants and variants/core need each other": "the interfaces of stages lie beside their entries, and cache.cc beside what is below them",
    "variants/codec and variants/core need each other": "the interfaces of stages lie beside their entries, and cache.cc beside what is below them",
    "variants/core and variants/placement need each other": "the interfaces of stages lie beside their entries, and cache.cc beside what is below them",
    "variants/core and variants/retention need each other": "the interfaces of stages lie beside their entries, and cache.cc beside what is below them",
    "variants/core and variants/storage need each other": "the interfaces of stages lie beside their entries, and cache.cc beside what is below them",
    "variants/retention and variants/storage need each other": "the interfaces of stages lie beside their entries, and cache.cc beside what is below them",
    "harness/math/random.cc defines names of kv::random outside kv::math": "older than the rule of one namespace a folder",
    "harness/math/random.h defines names of kv::random outside kv::math": "older than the rule of one namespace a folder",
}

SIZES = {
    "harness/gpu_check/triton_decode.py: decode_split has more than 60 lines": "one kernel, which its compiler must see whole",
}
