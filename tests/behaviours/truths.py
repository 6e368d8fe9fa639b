"""Whether what a check says of a wrong answer is true: each cause that it names, by its template.

A wrong behaviour (tests/behaviours) says in its title what it does: that is the truth, and TRUE has
for each cause the titles of which it is true. Any cause that is not there is true of none: a new
one is judged as soon as a check names it. POINTS are no causes: they say where to look. A wrong
answer of tests/candidates/ has in its heading the words that it must get; a cause in none of these
words is false.
"""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from course.words import Sentence

ROOT = Path(__file__).resolve().parent.parent.parent

# By the cause's English: a pattern of the exercise and the title, in which {places} are filled in.
TRUE: dict[str, str] = {
    "the input is rounded to float16 before it is used":
        "(input|input 0|^0.1 its argument): rounded to float16$",
    "the input is cut to whole numbers before it is used":
        "(input|input 0|^0.1 its argument): rounded to whole numbers$",
    "the signs of the input are lost before it is used":
        "(input|input 0|^0.1 its argument): without their signs$",
    "the result is rounded to float16": "(value .|result): rounded to float16$",
    "the result is cut to whole numbers": "(value .|result): rounded to whole numbers$",
    "the weight is rounded to float16": "(weight|weights|input 1): rounded to float16$",
    "the weight is cut to whole numbers":
        "(weights|input 1): rounded to whole numbers$|^6.2 its first input: rounded to whole",
    "the signs of the weight are lost":
        "(weights|input 1): without their signs$|^6.2 its first input: without",
    "the upper constant: it is {value}, not 6": "cut off above {value}$",
    "the sign: this is |x|, cut at 6": "^0.2 its first input: without their signs$",
    "T.max: this is the largest absolute value of each row":
        "^0.3 its first input: without their signs$",
    "the largest absolute value is taken": "^2.4 input 0: without their signs$",
    "T.init: {start} is not low enough": "cut off below {start}$",
    "a class without images: its recall is not 0 but unknown, NaN": "NaN as 0$",
    "only the first image of the batch is right: the batch axis": "of the first row$",
    "{kernel}: is every element of its output written?": "the last not written$",
    "which loop is made parallel: none along which a sum or a maximum runs":
        "innermost loops: parallel$",
    "the classes are in reversed order": "in reversed order$",
    "the weight's first axis runs backwards": "weights: in reversed order$",
    "the weight's first axis: each place has the numbers of the one before": "_weight: rolled$",
    "the bias: each place has the number of the one before": "_bias: rolled$",
    "a constant of which {count} numbers differ, by up to {most}; the first at {place}: "
    "{value} for {right}":
        "_(weight|bias): (one number|a thousandth|rounded)",
    "where the weights come from: the argument, not a variable of the notebook":
        "its weights: those of the first call$",
    "the name in tvm.s_tir.Schedule(...): the function's argument, not a variable of the notebook":
        "the module of the first call$",
    "the least first time": "that of the first call$",
    "the maximum: it is that of the whole array, not of each row (all exponentials of a row "
    "can be 0)":
        "its largest: of all rows$",
    "the sum: it runs over the whole array, not over one row": "its sum: of all rows$",
    "the largest logit has to be each row's own, not that of another row or of the whole batch":
        "its largest: of (all|the)",
    "softmax: subtract each row's largest logit before the exponential": "its largest: ",
    "the search for the largest leaves out the last column":
        "its largest: the last one from its neighbour$",
    "the loop over the columns: the last is left out":
        "its largest: the last one from its neighbour$",
    "the rows: every one gets the largest of row 0": "its largest: of the first row$",
    "GELU instead of the ReLU": "ReLU .: GELU$",
    "the ReLU is left out: negative numbers have to become 0": "ReLU .: left out$",
    "the ReLU: it is left out": "ReLUs taken out$",
    "the ReLU after the first layer is missing": "^0.5 ReLU 1: after the next operator$",
    "layers {layer} and {next}, {name} and {other}, have changed places":
        "ReLU 2: after the next operator$",
    "the ReLU lets a part of negative numbers through (0.01 x), as a leaky ReLU": "ReLU .: leaky$",
    "the minimum of x and 0, where the maximum is meant": "ReLU .: the minimum$",
    "the ReLU is cut off at 6, as a ReLU6": "cut off above 6$",
    "the softmax is applied twice": "the softmax: doubled$",
    "the bias of the convolution is left out": "Conv2d: the model's bias: zeroed$",
    "the rule for nn.Linear: the biases are left out": "^5.5 the model's bias: zeroed$",
    "the dilation: the layer's is ignored, 1 is used": "Conv2d: dilation set to 1$",
    "the padding: the layer's is ignored, 0 is used": ": padding set to 0$",
    "the stride of the pooling is 1": "MaxPool2d: stride set to 1$",
    "the stride: the layer's is ignored, 1 is used": "Conv2d: stride set to 1$",
    'the batch: tvm.tirx.Var("n", "int64") in place of a number': "its batch: fixed$",
    "every output channel has a kernel for each input channel":
        "^1.3 argument 1: that of the first call$",
    "the padding is left out of the output's size": "^1.3 argument 6: that of the first call$",
    "the stride is left out of the output's size": "^1.3 argument 5: that of the first call$",
    "the bias has one number for each output channel, not for each input channel":
        "^1.3 arguments 1 and 2 exchanged$",
    "the division: // drops what is behind the point": "rounded to whole numbers$",
    # with one channel for all, each channel gets the image once more
    "the image: it is loaded once, for all channels of the tile":
        "^7.1 argument 2: that of the first call$",
    "now, the clock of this machine: it was never read": "^8.3 (always|a clock of its own)",
    "func itself came: a Schedule works on a copy of it":
        "^8.4 the program: (as it was|without the last step)$",
    "every tensor has a storage of its own: when does one become free?": "a storage for each$",
    "each tensor has a storage of its own: which of them are needed at the same time?":
        "^3.2 a storage for each$",
    "two that take turns: a tensor that is read again later keeps its place meanwhile":
        "^3.2 two in turns$",
    "peak and bandwidth: they are exchanged": "^6.1 arguments 3 and 4 exchanged$",
    "keepdim: with True the axes stay, with 1 element each":
        "^11.2 its arguments: without keepdim$",
    "keepdim is False where it is not given": "^11.2 its arguments: keepdim, always$",
    "dim may have several axes": "^11.2 its arguments: the first axis alone$",
    "an address has as many bytes as the argument says":
        "^11.4 argument 3: that of the first call$",
    "which loop is x: that of the columns": "^10.1 bind: x and y exchanged$",
    "the first element: a warp may begin in the middle of a stretch":
        "^10.2 argument 0: that of the first call$",
}

POINTS = {
    "zeros between the fields, and nothing after the last",
    "what is changed: nothing but the kind of some loops",
    "the kinds of the loops: vectorized and unrolled ones stay so",
    "the field {name}, and the sizes of those before it",
    "each statement of kind tirx.For, wherever it stands",
    '; T.min_value("float32") is lower than any number',
    "None says that a rewrite is right, an array that it is wrong",
    "a ReLU cut at 20",
    "a ReLU cut at 6",
    "a ReLU whose result is used twice",
    "a bias on the left",
    "a call that reads the one while it writes the other needs both: < or <=?",
    "a convolution with a bias",
    "a convolution without a bias",
    "a minimum of what is no ReLU, and a ReLU that is not cut",
    "a second call with the same input",
    "as few blocks as cover the image, along each axis",
    "both sides for this input, number by number: where does the operator treat numbers "
    "unlike others?",
    "bytes",
    'cache_write(block, 0, "local") for block {base_name}',
    "call {call}, while which these tensors in between are needed: {numbers}",
    "check_equivalence of checks.mended(faulty, mend()): where does it differ now?",
    "compute_at or reverse_compute_at: a loop outside all over which {what} run",
    "each decision belongs to the instruction whose number it has: of which kind is it?",
    "how deep the tiles are",
    "how far measurements of one program lie apart: a difference below that says nothing",
    "how many calls there are in all",
    "how many calls, in how many rounds, and what is made of their times",
    "how many results use a number that is in shared memory: rows and columns of the tile",
    "in each round the order of the dict",
    "layer {layer}, {name}",
    "max_innermost_factor of each draw: what the draws before it left",
    "max_innermost_factor of sample_perfect_tile: 16 unless you say otherwise",
    "neighbouring threads take neighbouring numbers: which part of the split is theirs?",
    "nothing but barriers is to be added",
    "np.array_equal: a tolerance hides small changes",
    "numbers of the image, weights and sums of one tile, one after the other",
    "one time_of too many: no call to warm up, and each round calls it once",
    "one window that has numbers of both signs, one at the edge, one in the middle: both "
    "sides by hand",
    "operations, bytes and units, one after the other",
    "parameters",
    "reorder: ..., ry, rx, and then the inner pieces",
    "reorder: what stands inside the window besides the three inner pieces",
    "repeats: how many rounds are there?",
    "reverse_compute_at: under which loop is the copy, and what is complete in one iteration "
    "of it?",
    "rfactor, of one of the two loops that the split gave",
    "sample_perfect_tile for f, y and x: a number drawn elsewhere is not in the trace",
    "sample_perfect_tile never ends where max_innermost_factor is below 1; then your loops: "
    "does each end?",
    "schedule.decompose_reduction for {block}, as the last step",
    "schedule.decompose_reduction, as the last step",
    "schedule.parallel: which loop does it get?",
    "schedule.unroll, for both loops of the window",
    "schedule.unroll: in each iteration of {loops} the sum is loaded and stored again",
    "schedule.vectorize, and the order of the loops",
    "split: it gets what sample_perfect_tile returned",
    "split: it gets what sample_perfect_tile returned, unchanged, for the same loop",
    "step 2: compute_inline",
    "step 5: unroll",
    "the CNN",
    "the array's shape and dtype",
    "the constants and variables in the call of {name}",
    "the Dim of each input's first axis: {fixed} is a number in main",
    "the Dim: from where to where?",
    "the Dims: from where to where?",
    "the extents of the loops that are bound to threadIdx",
    "the extents of the loops, and the indices",
    "the factor by which k is split",
    "the factor of the split",
    "the factor of the split: how many iterations has the inner loop?",
    "the factors of the split, and which of the two loops rfactor gets",
    "the factors of the splits, and which loops are bound to threadIdx",
    "the first value that differs from PyTorch's: check_equivalence names its layer and what "
    "computes it",
    "the input after each of the calls: compare every copy with x",
    "the input after the call: compare it with numbers that the function could not change",
    "the instruction SampleCategorical, its attributes, and its decision",
    "the last step, where no candidate was correct",
    "the loop over the rows is bound to blockIdx.x",
    "the loops that the two have in common, {loops}: how many rows does one iteration of "
    "them need?",
    "the median: this one has {text}",
    "the minimum with another input",
    "the model's own {name}, {shape}",
    "the names of the list",
    "the numbers of the array",
    "the order of the axes that main returns, and the precision",
    "the order of the loops around C: it is i, k, j",
    "the output, which is allocated apart: there is nothing in between",
    "the parameters of the function",
    "the part of the loop that is bound to threadIdx.x",
    "the pattern: what does it say, and of which side?",
    "the pattern: with a bias and without one",
    "the patterns: a product of anything, and a bias of one axis",
    "the record that is applied, to a new Schedule of func",
    "the return statement",
    "the return value: schedule.mod, for a Schedule works on a copy of mod. Or {look_at}",
    "the same shapes, and other weights",
    "the second argument of rfactor: the axis of the new buffer that counts the partial sums",
    'the second thing that replayed returns: schedule.mod["main"]',
    "the size of the tile: the loops {inner}",
    "the stretch of each thread's element, and how many different ones there are",
    "the sums",
    "the two blocks have no loop in common: compute_at",
    "the words of the exercise: X[i, j] and Y[i, j] in loops, and functions of NumPy for "
    "single numbers only",
    "tvm.s_tir.Schedule(func, seed=seed): the seed that is given",
    "two fillings of out that differ",
    "two of them, with two numbers",
    "what becomes of this weight before it is a constant",
    "what can be computed now: w' and b' are constants",
    "what is changed: `schedule` itself. What is done to schedule.copy(), or to a new "
    "Schedule, is lost",
    "what is compared: the times of one round, for both programs get slower",
    "what is kept where is_correct says False, and where it raises",
    "what is made of the times: one call in {count} takes 600 times as long",
    "what is returned",
    'what is returned: a PrimFunc, as schedule.mod["main"] is one',
    "what plan returns",
    "what replayed returns: two things",
    "what storages_needed returns",
    "what this sum for the {what} leaves out or counts twice",
    "what verdicts returns",
    "where a thread has to wait for the others",
    "where the sum grows: cache_write",
    "what several threads write at once: is the loop's work shared out to them?",
    "what is exported: the module as it is, and which input is which",
    "whether there is such an input at all: None is a verdict, too",
    "which buffers stand in global memory, and which numbers of them a warp takes",
    "which calls are timed: up to {count} of a program are slow at first",
    "which elements each thread reads and writes",
    "which loop is innermost and vectorised",
    "which loop is innermost and vectorised: one over x alone",
    "which loops are bound, where barriers stand, and what each thread reads and writes",
    "which numbers a warp copies into shared memory: neighbours of a row?",
    "which of several free storages a tensor gets: one that is large enough, or the one that "
    "grows least",
    "which of the two loops of the split is the one over the partial sums",
    "which of them nobody has to wait at",
    "which storages are free when a tensor comes, and until when each is needed",
    "which times are compared, and which name belongs to them",
    "x counts the columns, for blocks as for threads; a block is a square",
    "your line {line}: {source}",
    "your loops: does each end, and does each count what it should?",
    "{checked} was the last that was checked: continue, not break",
    "{count} transposes of constants are left: who made them, and who came before that?",
    "{kernels}: its arguments and its output shape, one after the other; before them stands "
    "{since}",
    "{kernels}: its arguments and its output shape, or whether it is wanted at all",
    "{kernels}: its arguments and its output shape; {kernel} adds the right bias to what it "
    "gets",
    "{kernel}, which is given the right {name} from {giver}: its arguments and its output shape",
    "{kernel}: its arguments and its output shape; it is given {since}",
    "{layer} on {shape}",
    "{name} from {kernel}, which is right ({says})",
    "{name} has no use: since which pass, and who removes such a thing?",
}


# What a check wants of an answer's form, and the behaviours that lack it by what they do: the
# schedule, the export or the struct of other arguments does not come about.
FORMS = {
    "explicit loops over single elements": "(?!)",
    "that your code runs":
        "^(4|6|7|8|10).. (bind|cache_write|compute_inline|draw|split): |^1.3 arguments 5 and 6"
        "|^11.1 (the|its result: the)|^11.2 its arguments|^11.4 argument [01]: ",
    "a program for a GPU that runs; {title}":
        "^10.. (split|bind|cache_read|compute_at|set_scope|the program|that of)|^10.5 its result: ",
}


def named(value: Any) -> Iterator[Sentence]:
    """Yield the sentences in the last line of a message, from the whole to its parts."""
    if isinstance(value, Sentence):
        yield value
        for part in (value.places or {}).values():
            yield from named(part)


def false_causes(number: str, title: str, look_at: Any) -> list[str]:
    """Return which causes in a message's last line are not true of a wrong behaviour."""
    return [sentence for sentence in named(look_at)
            if re.search("[a-z]{2}", re.sub(r"{\w+}", "", sentence.template))
            and sentence.template not in POINTS
            and not (sentence.template in TRUE and re.search(
                TRUE[sentence.template].format(**{
                    name: re.escape(str(place))
                    for name, place in (sentence.places or {}).items()}),
                f"{number} {title}"))]


def untried(number: str, title: str, wanted: Any) -> list[str]:
    """Return what was wanted, where that is a form: a wrong behaviour is refused for what it does.

    One that is refused for the way in which it is wrapped around an answer is not tried at all.
    """
    return [sentence for sentence in named(wanted) if sentence.template in FORMS
            and not re.search(FORMS[sentence.template], f"{number} {title}")]


# ---- what exists ---------------------------------------------------------------------------


def _english(node: ast.AST | None) -> Iterator[str]:
    """Yield the template of `_("...")`, also where its places are filled in."""
    match node:
        case ast.Call(func=ast.Name("_" | "ngettext"), args=args):
            yield from (str(arg.value) for arg in args if isinstance(arg, ast.Constant))
        case ast.Call(func=ast.Attribute(value=inner, attr="format")):
            yield from _english(inner)


@functools.cache
def causes() -> frozenset[str]:
    """Return the causes that checks can name: the keys of their tables."""
    found: set[str] = set()
    for path in (ROOT / "course" / "checks").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Dict):
                found |= {text for key in node.keys for text in _english(key)}
    return frozenset(found)


def unexpected_causes(look_at: Any, words: str) -> list[str]:
    """Return which causes in a message's last line are not in the words that it must have."""
    return [sentence for sentence in named(look_at) if sentence.template in causes() - POINTS
            and not any(part in sentence or sentence in part for part in words.split(" | "))]
