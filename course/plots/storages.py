"""Which tensor lies in which storage, and from when to when."""

from dataclasses import dataclass

import tvm
from tvm import relax

from course.plots.figure import EDGE, ORANGE, PALE, box, sheet, show, write
from course.words import _

_OWN = "#f7d9b0"  # a tensor for which nothing was planned: it goes to the caller


@dataclass
class _Life:
    """A tensor: its name, the row of its storage, the calls (from 1) that use it first and last."""

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
