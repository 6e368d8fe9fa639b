"""NVRTC comes in five packages, some of them with torch: what notebook 10 says of each part."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
STEPS = [(("nvidia-cuda-nvrtc==13.*", "cuda-bindings==13.*"), "NVRTC: does not work here ("),
         (("nvidia-cuda-runtime==13.*",), "NVRTC: does not work here ("),  # as torch's CUDA build
         (("nvidia-cuda-cccl==13.*", "nvidia-cuda-crt==13.*"), "wmma.mma.sync")]


def _cell() -> str:
    """Return the code of the cell that asks for PTX, and of those that it needs."""
    cells = [cell.source for cell in nbformat.read(
        ROOT / "notebooks" / "10_gpu_programs.ipynb", as_version=4).cells
        if cell.cell_type == "code"]
    needed = ("from course import gpu", "def product_of_halves", "def on_tensor_cores", "gpu.ptx")
    return "\n".join(["import helpers", *(cell for cell in cells
                                          if any(part in cell for part in needed))])


@pytest.mark.skipif(sys.platform != "linux", reason="the packages are for Linux and Windows")
def test_each_part_of_nvrtc_is_told_and_the_whole_works(tmp_path: Path) -> None:
    """In an environment of its own, since what it brings along is looked for beside it."""
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path / "venv")}))
    (site / "course.pth").write_text(sysconfig.get_path("purelib"))
    for number, (packages, says) in enumerate(STEPS):
        fetched = tmp_path / str(number)  # pip puts nothing into a folder that is there
        done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target",
                               str(fetched), *packages], capture_output=True, text=True,
                              check=False)
        if done.returncode:
            pytest.skip(f"pip cannot get {packages[0]}: {done.stderr.strip().splitlines()[-1]}")
        shutil.copytree(fetched, site, dirs_exist_ok=True)
        shutil.rmtree(fetched)
        ran = subprocess.run([str(python), "-c", _cell()], cwd=ROOT, capture_output=True, text=True,
                             check=False, env={**os.environ, "PYTHONPATH": str(ROOT)})
        assert ran.returncode == 0, ran.stderr
        assert says in ran.stdout, ran.stdout
