# What the signatures in module.cc name, at the top of the stubs.
_kvlab.__prefix__:
    from typing import Protocol

    class Array(Protocol):
        """A contiguous float32 array in the CPU's memory: NumPy's, or any other with DLPack's two methods."""

        def __dlpack__(self, *arguments: object, **options: object) -> object: ...
        def __dlpack_device__(self) -> tuple[int, int]: ...
