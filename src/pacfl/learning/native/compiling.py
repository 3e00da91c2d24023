"""Text of LLVM -> functions that can be called, which let other threads of Python run meanwhile."""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite
from llvmlite import binding

from pacfl.learning.native import code_cache
from pacfl.learning.native.target import Target

PIPELINE = "O3, loops and vectors as written"  # names what `optimised` does, for code that is kept


class Machine:
    """Compiled text. Functions live as long as it does."""

    def __init__(self, text: str, target: Target) -> None:
        """Compile, or take what was compiled from the same text before."""
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        machine = binding.Target.from_default_triple().create_target_machine(
            cpu=target.cpu, features=target.features, opt=3, jit=True
        )
        made_by = (llvmlite.__version__, str(binding.llvm_version_info), PIPELINE, machine.triple)
        key = code_cache.key(text, target.cpu, target.features, *made_by)
        code = code_cache.kept(key, lambda: machine.emit_object(optimised(text, machine)))
        self._engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
        self._engine.add_object_file(binding.ObjectFileRef.from_data(code))
        self._engine.finalize_object()

    def function(self, name: str, arguments: Sequence[Any]) -> Callable[..., None]:
        """A public function by name, with the given ctypes."""
        return ctypes.CFUNCTYPE(None, *arguments)(self._engine.get_function_address(name))


def optimised(text: str, machine: Any) -> Any:
    """The text as a module of LLVM, after its optimising passes."""
    module = binding.parse_assembly(text)
    module.verify()
    # Vectors are written as they should be: what is left to loops is scalar, and short
    options = binding.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    passes = binding.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    return module
