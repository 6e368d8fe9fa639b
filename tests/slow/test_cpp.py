"""The C++ program of notebook 11 writes what PyTorch writes, and says what is wrong."""

from pathlib import Path

import pytest
import torch
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

import helpers
from course import present
from course.ship import native
from data import gpt
from data.store import CourseError


@pytest.mark.skipif(not present.tool("c++"), reason=present.tool("c++").said)
def test_the_program_in_cpp_writes_as_pytorch(tmp_path: Path) -> None:
    model, tokens = gpt.load(), torch.zeros(1, 8, dtype=torch.int64)
    with helpers.quiet():
        program = torch.export.export(model, (tokens,), dynamic_shapes=(
            {1: torch.export.Dim("length", min=2, max=gpt.LONGEST)},))
        mod = from_exported_program(program, unwrap_unit_return_tuple=True)
        relax.build(mod, target="llvm").export_library(
            str(tmp_path / "gpt.so"), fcompile=native.linker())
    native.run(native.with_runtime(tmp_path / "run"))
    said, _told = native.run([tmp_path / "run", tmp_path / "gpt.so", "A loop ", "12"])
    text = torch.from_numpy(gpt.tokens_of("A loop "))
    for _ in range(12):
        with torch.no_grad():
            text = torch.cat([text, model(text)[:, -1:].argmax(-1)], 1)
    assert said == gpt.text_of(text[0].numpy()) + "\n"
    for given, says in ((["gpt.so"], "run LIBRARY TEXT LETTERS"),
                        (["none.so", "A", "1"], "none.so"),
                        (["gpt.so", "A" * 60, "9"], "storage allocation failure")):
        with pytest.raises(CourseError, match=says):
            native.run([tmp_path / "run", tmp_path / given[0], *given[1:]])
