"""Model files loaded where there is no pacfl."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

PROGRAM = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pacfl", "tests"):
            raise ImportError(f"{name} is not here")
sys.meta_path.insert(0, Nothing())
import warnings
warnings.simplefilter("ignore")
import numpy, torch
*pairs, output = sys.argv[1:]
outputs = {}
for model, samples in zip(pairs[::2], pairs[1::2]):
    module = torch.export.load(model).module()
    x = torch.from_numpy(numpy.load(samples))
    with torch.no_grad():
        parts = [module(x[:1]), module(x[1:4]), module(x[4:])]
    outputs[f"{len(outputs)}"] = torch.cat(parts).numpy()
assert "pacfl" not in sys.modules
numpy.savez(output, **outputs)
"""


def torch_outputs(pairs: list[tuple[Path, NDArray[np.generic]]], folder: Path) -> list[NDArray[np.float32]]:
    """What .pt2 files compute for samples, in batches of several sizes, in a process that cannot import pacfl."""
    words: list[str] = []
    for i, (model, samples) in enumerate(pairs):
        np.save(folder / f"samples-{i}.npy", samples)
        words += [str(model), str(folder / f"samples-{i}.npy")]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words, str(folder / "outputs.npz")],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with np.load(folder / "outputs.npz") as outputs:
        return [outputs[str(i)] for i in range(len(pairs))]


def onnx_outputs(model: Path, samples: NDArray[np.generic]) -> NDArray[np.float32]:
    """What an .onnx file computes, in batches of several sizes."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    parts = [session.run(None, {"samples": part})[0] for part in (samples[:1], samples[1:4], samples[4:])]
    return np.concatenate(parts)
