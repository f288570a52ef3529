"""What breaks a rule of layering_test.py or size_test.py, by the rule's message: why it may, or who will fix it."""

LAYERING = {
    "kernels/attention.cc includes kernels/cpu/attention/attention_task.h": "attend() and encode_units() pick the instruction set: their definitions belong to kernels/cpu",
    "kernels/attention.cc includes kernels/cpu/attention/attention_weights.h": "attend() and encode_units() pick the instruction set: their definitions belong to kernels/cpu",
    "kernels/attention.cc includes kernels/cpu/attention/prefill_task.h": "attend() and encode_units() pick the instruction set: their definitions belong to kernels/cpu",
    "kernels/attention.cc includes kernels/cpu/isa.h": "attend() and encode_units() pick the instruction set: their definitions belong to kernels/cpu",
    "kernels/attention.cc includes kernels/format/descriptor.h": "attend() and encode_units() pick the instruction set: their definitions belong to kernels/cpu",
    "kernels/attention.cc includes kernels/format/encoding.h": "attend() and encode_units() pick the instruction set: their definitions belong to kernels/cpu",
    "kernels/format/channel.cc includes kernels/cpu/encode/convert.h": "attend() and encode_units() pick the instruction set: their definitions belong to kernels/cpu",
    "kernels/format/encoding.cc includes kernels/cpu/encode/encode_simd.h": "attend() and encode_units() pick the instruction set: their definitions belong to kernels/cpu",
    "kernels/format/encoding.cc includes kernels/cpu/isa.h": "attend() and encode_units() pick the instruction set: their definitions belong to kernels/cpu",
    "kernels/format/f16.h includes kernels/cpu/encode/convert.h": "attend() and encode_units() pick the instruction set: their definitions belong to kernels/cpu",
    "kernels and kernels/cpu/attention need each other": "attend() and encode_units() pick the instruction set: their definitions belong to kernels/cpu",
    "kernels and kernels/format need each other": "attend() and encode_units() pick the instruction set: their definitions belong to kernels/cpu",
    "kernels/cpu/encode and kernels/format need each other": "attend() and encode_units() pick the instruction set: their definitions belong to kernels/cpu",
    "kernels/cuda and kernels/cuda/attention need each other": "a launch is named by the kernels and by the host: split gpu.h",
    "kernels/cuda and kernels/cuda/encode need each other": "a launch is named by the kernels and by the host: split gpu.h",
    "harness/gpu_check/convert_scalar.cc defines names of kv::cpu outside kv::gpu_check": "stands in for kernels/cpu where nvcc compiles alone",
}

SIZES = {
    "harness/gpu_check/triton_decode.py: decode_split has more than 60 lines": "one kernel, which its compiler must see whole",
}
