"""Which tensor is in which storage, and when; how a compiled kernel gets its tensors."""

from collections.abc import Sequence
from dataclasses import dataclass

import tvm
from tvm import relax

from course.plots.figure import ARROW, BLUE, EDGE, ORANGE, PALE, box, sheet, show, write
from course.words import _, listed

_OWN = "#f7d9b0"  # a tensor without planned storage: it goes to the caller


@dataclass
class _Life:
    """A tensor: its name, its storage's row, and the first and last call (from 1) to use it."""

    name: str
    row: int
    first: int
    last: int


def _lives(func: relax.Function) -> tuple[list[str], list[str], list[_Life]]:
    """Return the storages' names and sizes, the functions called, and the tensors in between.

    `func` is a `main` after StaticPlanBlockMemory. What it returns lives to the end.
    """
    storages: list[str] = []
    rows: dict[relax.Var, int] = {}
    made: dict[relax.Var, relax.Var] = {}  # a variable and that of its allocation
    lives: dict[relax.Var, _Life] = {}
    calls: list[str] = []
    for block in func.body.blocks:
        for binding in block.bindings:
            var, value = binding.var, binding.value
            match value:
                case relax.Var() if value in made:  # lv0 = alloc
                    made[var] = made[value]
                    lives[made[var]].name = var.name
                case relax.Call(op=tvm.ir.Op(name="relax.reshape"), args=args) if args[0] in made:
                    made[var] = made[args[0]]  # the same bytes, another shape
                case relax.Call(op=tvm.ir.GlobalVar()):
                    calls.append(value.op.name_hint)
                    for tensor in {made[arg] for arg in value.args if arg in made}:
                        life = lives[tensor]
                        life.first, life.last = life.first or len(calls), len(calls)
                case relax.Call(op=tvm.ir.Op(name="relax.memory.alloc_storage")):
                    rows[var] = len(storages)
                    storages.append(_("{name}, {count} bytes").format(
                        name=var.name, count=int(value.args[0].values[0])))
                case relax.Call(op=tvm.ir.Op(name="relax.memory.alloc_tensor")):
                    made[var], lives[var] = var, _Life(var.name, rows[value.args[0]], 0, 0)
                case relax.Call(op=tvm.ir.Op(name="relax.builtin.alloc_tensor")):
                    made[var], lives[var] = var, _Life(var.name, len(storages), 0, 0)
                    storages.append(_("allocated apart"))
    if func.body.body in made:
        lives[made[func.body.body]].last = len(calls)
    return storages, calls, list(lives.values())


def storages(mod: tvm.IRModule) -> None:
    """Draw the tensors of a planned `main`: a row for each storage, a column for each call.

    A bar begins with the call that writes the tensor and ends with the last that reads it.
    """
    rows, calls, lives = _lives(mod["main"])
    titles = [f"{step}: {name}" for step, name in enumerate(calls, start=1)]
    column = max(1.25, 0.085 * max(map(len, titles), default=0))  # inches: bold, monospace
    figure, axes = sheet(column * len(calls) + 2.4, 0.5 * len(rows) + 0.9,
                         xlim=(-2.75 / column, len(calls) + 0.1), ylim=(len(rows) + 0.6, -0.5))
    for row, name in enumerate(rows):
        write(axes, -0.12, row + 0.5, name, ha="right", family="monospace")
        axes.plot([0, len(calls)], [row + 1, row + 1], color="#d0d7de", lw=0.8, zorder=0)
    for step, title in enumerate(titles):
        write(axes, step + 0.5, -0.25, title, weight="bold", family="monospace")
        axes.plot([step, step], [0, len(rows)], color=EDGE, lw=0.6, ls=":", zorder=0)
    for life in lives:
        left, wide = life.first - 1 + 0.06, life.last - life.first + 0.88
        own = rows[life.row] == _("allocated apart")
        box(axes, left, life.row + 0.16, wide, 0.68, _OWN if own else PALE)
        write(axes, left + wide / 2, life.row + 0.5, life.name, family="monospace")
    axes.annotate("", (len(calls), len(rows) + 0.2), (0, len(rows) + 0.2),
                  arrowprops={"arrowstyle": "->", "color": ORANGE})
    write(axes, len(calls) / 2, len(rows) + 0.42, _("time, call by call"), 8.5, style="italic",
          color="#9a5412")
    says = [_("{tensor} in {storage}: from call {first} to {last}").format(
        tensor=life.name, storage=rows[life.row], first=life.first, last=life.last)
        for life in lives]
    show(figure, _("Storages over time. {says}. Calls: {calls}.").format(
        says=_("; ").join(says), calls=_(", ").join(calls)))


# of DLPack's struct on a machine with addresses of 8 bytes: bytes of each field
FIELDS = {"data": 8, "device": 8, "axes": 4, "kind": 4, "shape": 8, "strides": 8, "first": 8}


def handed_over(names: Sequence[str], shape: Sequence[int]) -> None:
    """Draw the values that a kernel with parameters `names` gets, and what the first leads to.

    `shape`: that of the first parameter. Widths are bytes, on a machine with addresses of 8.
    """
    extents = ", ".join(str(int(extent)) for extent in shape)  # TVM's own print as T.int64(28)
    figure, axes = sheet(7.6, 2.9, xlim=(-0.5, 48.5), ylim=(10.4, -1.6))
    wide = 48 / len(names)
    for place, name in enumerate(names):
        box(axes, wide * place, 0, wide * 0.94, 1.6, BLUE if place == 0 else PALE)
        write(axes, wide * (place + 0.47), 0.8, _(name), 7,
              color="white" if place == 0 else "black")
    write(axes, 24, -0.8, _("{count} values of 16 bytes").format(count=len(names)), 10)
    left = 0
    for name, size in FIELDS.items():
        box(axes, left, 4, size, 1.6, PALE if name not in ("data", "shape") else BLUE)
        write(axes, left + size / 2, 4.8, name, 9,
              color="white" if name in ("data", "shape") else "black")
        write(axes, left, 6.1, str(left), 8)
        left += size
    write(axes, 48, 6.1, "48", 8)
    axes.annotate("", (0.4, 4), (wide * 0.47, 1.6), arrowprops=ARROW)
    write(axes, 24, 3.3, _("the struct of the first, and where each field begins"), 10)
    for field, at, text in ((4, 8, _("the numbers, one after the other")),
                            (28, 32, extents)):
        box(axes, at - 7, 8.2, 17 if at == 8 else 12, 1.6, "white")
        write(axes, at + 1.5 if at == 8 else at - 1, 9, text, 9)
        axes.annotate("", (field, 8.2), (field, 5.6), arrowprops=ARROW)
    show(figure, _("A row of {count} values: {names}. The first leads to a struct of 48 bytes, "
                   "with the fields {fields}; its data leads to the numbers, its shape to {shape}.")
         .format(count=len(names), names=listed(map(_, names)), shape=extents,
                 fields=listed(f"{name} ({size})" for name, size in FIELDS.items())))
