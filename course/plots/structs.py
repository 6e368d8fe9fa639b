"""How a compiled kernel is handed its tensors: values, structs, and what these lead to."""

from collections.abc import Sequence

from course.plots.figure import ARROW, BLUE, PALE, box, sheet, show, write
from course.words import _, listed

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
