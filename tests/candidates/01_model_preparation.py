# %% 1.1 wrong: divides by the column sums -> expected: [0.5, 0] | got: [*0.3333*, 0]
# axis=1 => axis=0

# %% 1.1 wrong: a class without images gets 0 -> expected: [nan, nan] | got: [0, 0]
# confusion.sum(axis=1) => np.maximum(confusion.sum(axis=1), 1)

# %% 1.1 wrong: float32 -> float32 [nan, nan]
# return np.diag(confusion) / confusion.sum(axis=1) => return (np.diag(confusion) / confusion.sum(axis=1)).astype("float32")

# %% 1.1 wrong: nothing is returned -> a NumPy array of numbers | NoneType
# return np.diag => np.diag

# %% 1.1 right: with a loop
def per_class_recall(confusion):
    recall = []
    for i in range(10):
        images = confusion[i].sum()
        recall.append(confusion[i, i] / images if images else float("nan"))
    return np.array(recall)

# %% 1.2 wrong: softmax and logarithm as written -> 1000 | got: nan
def cross_entropy(logits, labels):
    exponentials = np.exp(logits.astype(np.float64))
    p = exponentials / exponentials.sum(axis=1, keepdims=True)
    return -np.log(p[np.arange(len(labels)), labels]).mean()

# %% 1.2 wrong: shifted softmax, then the logarithm -> expected: 500.3 | got: inf
def cross_entropy(logits, labels):
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    p = exponentials / exponentials.sum(axis=1, keepdims=True)
    return -np.log(p[np.arange(len(labels)), labels]).mean()

# %% 1.2 wrong: an epsilon against log(0) -> expected: 500.3 | got: 14.16
def cross_entropy(logits, labels):
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    p = exponentials / exponentials.sum(axis=1, keepdims=True)
    return -np.log(p[np.arange(len(labels)), labels] + 1e-12).mean()

# %% 1.2 wrong: ten classes written in -> could not be broadcast
def cross_entropy(logits, labels):
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return -(log_p * np.eye(10)[labels]).sum(axis=1).mean()

# %% 1.2 wrong: nothing is returned -> an int or a float | None, of type NoneType
# return float => float

# %% 1.2 right: logaddexp
def cross_entropy(logits, labels):
    log_sums = np.logaddexp.reduce(logits, axis=1)
    return np.mean(log_sums - logits[np.arange(len(labels)), labels])

# %% 1.3 wrong: no padding in the output's size -> expected: [2, 18, 48] | got: [2, *2*, *16*]
# size + 2 * padding => size

# %% 1.3 wrong: padding on one side only -> expected: [2, 18, 48] | got: [2, *8*, *28*]
# size + 2 * padding => size + padding

# %% 1.3 wrong: the output's size is rounded up -> expected: [2, 2, 28] | got: [2, *8*, *40*]
# (size + 2 * padding - kernel) // stride + 1 => -(-(size + 2 * padding - kernel) // stride) + 1

# %% 1.3 wrong: / instead of // -> a tuple of three ints: parameters, FLOPs, bytes | (320, 1557504.0, 359936.0)
# // stride => / stride

# %% 1.3 right: counts the places of the window, and takes the sizes from PyTorch's layer
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    layer = nn.Conv2d(in_channels, out_channels, kernel, stride, padding)
    places = len(range(0, size + 2 * padding - kernel + 1, stride))
    parameters = layer.weight.numel() + layer.bias.numel()
    outputs = batch * out_channels * places * places
    flops = outputs * (in_channels * kernel * kernel) + outputs * (in_channels * kernel * kernel)
    return parameters, flops, 4 * (batch * in_channels * size * size + parameters + outputs)

# %% more

# %% 1.1 right: np.divide where there are images
def per_class_recall(confusion):
    rows = confusion.sum(axis=1)
    return np.divide(confusion.diagonal(), rows, out=np.full(10, np.nan), where=rows > 0)

# %% 1.1 right: the warning of 0 / 0 is not silenced
def per_class_recall(confusion):
    return np.diag(confusion) / confusion.sum(axis=1)

# %% 1.2 right: with a loop over the images, in float64
def cross_entropy(logits, labels):
    total = 0.0
    for row, label in zip(logits.astype(np.float64), labels, strict=True):
        total += np.log(np.sum(np.exp(row - row.max()))) + row.max() - row[label]
    return total / len(labels)

# %% 1.2 right: one-hot, float32, as a 0-dimensional array
def cross_entropy(logits, labels):
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    hot = np.eye(logits.shape[1], dtype="float32")[labels]
    return np.array(-(log_p * hot).sum() / len(labels), dtype="float32")

# %% 1.3 right: NumPy integers in a list
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = np.int64(size + 2 * padding - kernel + stride) // stride
    weight = np.prod([out_channels, in_channels, kernel, kernel])
    outputs = np.prod([batch, out_channels, side, side])
    flops = 2 * weight // out_channels * outputs
    return [weight + out_channels, flops,
            4 * (batch * in_channels * size**2 + weight + out_channels + outputs)]

# %% 1.2 wrong: PyTorch's own function -> NumPy alone
def cross_entropy(logits, labels):
    return F.cross_entropy(torch.tensor(logits), torch.tensor(labels)).item()

# %% 1.1 wrong: 0 where a class is neither there nor predicted -> [0, 0]
def per_class_recall(confusion):
    with np.errstate(all="ignore"):
        recall = np.diag(confusion) / confusion.sum(axis=1)
    recall[confusion.sum(axis=0) == 0] = 0
    return recall

# %% 1.1 wrong: the last class is 0 -> [nan, nan, nan, nan, nan, nan, nan, nan, nan, *0*]
def per_class_recall(confusion):
    with np.errstate(all="ignore"):
        recall = np.diag(confusion) / confusion.sum(axis=1)
        recall[9] = 0
        return recall

# %% 1.1 wrong: the mean of all -> a NumPy array of numbers
# return np.diag(confusion) / confusion.sum(axis=1) => return np.nanmean(np.diag(confusion) / confusion.sum(axis=1))

# %% 1.1 wrong: a list -> a NumPy array of numbers
# return np.diag(confusion) / confusion.sum(axis=1) => return list(np.diag(confusion) / confusion.sum(axis=1))

# %% 1.1 right: einsum
def per_class_recall(confusion):
    with np.errstate(all="ignore"):
        return np.einsum('ii->i', confusion) / np.einsum('ij->i', confusion)

# %% 1.1 right: rows divided, then the diagonal, float64
def per_class_recall(confusion):
    with np.errstate(all="ignore"):
        return np.diagonal(confusion.astype(float) / confusion.sum(1, keepdims=True))

# %% 1.1 right: np.where
def per_class_recall(confusion):
    with np.errstate(all="ignore"):
        return np.where(confusion.sum(axis=1) > 0, np.diag(confusion) / np.maximum(confusion.sum(axis=1), 1), np.nan)

# %% 1.2 wrong: a str -> an int or a float | '3.5078108', of type str
# return float => return str

# %% 1.2 wrong: a list -> an int or a float | of type list
# return float((log_sums - shifted[np.arange(len(labels)), labels]).mean()) => return [log_sums.mean()]

# %% 1.2 wrong: an array of one number -> an int or a float | of type ndarray
# return float((log_sums - shifted[np.arange(len(labels)), labels]).mean()) => return log_sums.mean(keepdims=True)

# %% 1.2 right: np.average, int labels, a NumPy scalar
# return float((log_sums - shifted[np.arange(len(labels)), labels]).mean()) => return np.average(log_sums - shifted[np.arange(len(labels)), labels])

# %% 1.2 right: shifted by a number near the largest
# logits.max(axis=1, keepdims=True) => (logits.max(axis=1, keepdims=True) - 5)

# %% 1.2 right: a running logarithm of sums, in Python
def cross_entropy(logits, labels):
    import math
    total = 0.0
    for row, label in zip(logits.tolist(), labels.tolist()):
        s = -math.inf
        for v in row:
            a, b = max(s, v), min(s, v)
            s = a + math.log1p(math.exp(b - a))
        total += s - row[label]
    return total / len(labels)

# %% 1.3 wrong: floats -> a tuple of three ints
# return parameters, 2 * products * outputs, 4 * (inputs + parameters + outputs) => return float(parameters), 2.0 * products * outputs, 4.0 * (inputs + parameters + outputs)

# %% 1.3 wrong: two numbers -> a tuple of three ints
# return parameters, 2 * products * outputs, 4 * (inputs + parameters + outputs) => return parameters, 2 * products * outputs

# %% 1.3 wrong: nothing -> a tuple of three ints
# return parameters, 2 * products * outputs, 4 * (inputs + parameters + outputs) => return None

# %% 1.3 right: divmod and sums
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = divmod(size - kernel + padding + padding, stride)[0] + 1
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = sum([o * in_channels * kernel * kernel] * 2)
    m = 4 * (batch * in_channels * size**2 + p + o)
    return p, f, m

# %% 1.3 right: int of a quotient
# (size + 2 * padding - kernel) // stride + 1 => int((size + 2 * padding - kernel) / stride + 1)

# %% 1.1 wrong: labels and predictions as parameters -> per_class_recall takes (labels, predictions)
def per_class_recall(labels, predictions):
    return np.array([np.mean(predictions[labels == c] == c) for c in range(10)])

# %% 1.3 wrong: channels exchanged in the signature -> conv2d_cost takes (batch, out_channels, in_channels, size
# in_channels: int, out_channels: int => out_channels: int, in_channels: int

# %% 1.1 wrong: clears what it was given -> input confusion: | confusion to stay as it was | other numbers in it
def per_class_recall(confusion):
    with np.errstate(all="ignore"):
        recall = np.diag(confusion) / confusion.sum(axis=1)
    confusion[:] = 0
    return recall

# %% 1.2 wrong: shifts the logits in place -> input logits: | logits to stay as it was
def cross_entropy(logits, labels):
    logits -= logits.max(axis=1, keepdims=True)
    return float((np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(labels)), labels]).mean())

# %% 1.3 right: an array of ints
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    window = in_channels * kernel**2
    side = (size + 2 * padding - kernel) // stride + 1
    parameters, outputs = out_channels * (window + 1), batch * out_channels * side**2
    return np.array([parameters, 2 * window * outputs,
                     4 * (batch * in_channels * size**2 + parameters + outputs)])

# %% 1.1 wrong: rounded to four digits -> input confusion:
# return np.diag(confusion) / confusion.sum(axis=1) => return (np.diag(confusion) / confusion.sum(axis=1)).round(4)

# %% 1.2 wrong: rounded to four digits -> input logits:
# .mean()) => .mean().round(4))

# %% 1.1 wrong: counts the notebook's labels and predictions -> input confusion: 10 x 10
def per_class_recall(confusion: np.ndarray) -> np.ndarray:
    """Recall of each class: confusion (10, 10), rows are labels, to (10,) float64."""
    recall = np.empty(10)
    for c in range(10):
        of_class = labels == c
        recall[c] = (predictions[of_class] == c).double().mean().item()
    return recall

# %% 1.3 wrong: remembers the output's side by size and kernel -> [10, *12168*, *5880*]
_sides: dict[tuple[int, int], int] = {}


def conv2d_cost(batch: int, in_channels: int, out_channels: int, size: int,
                kernel: int, stride: int, padding: int) -> tuple[int, int, int]:
    key = (size, kernel)
    if key not in _sides:
        _sides[key] = (size + 2 * padding - kernel) // stride + 1
    side = _sides[key]
    k = in_channels * kernel**2
    parameters = out_channels * (k + 1)
    outputs = batch * out_channels * side**2
    return (parameters, 2 * k * outputs,
            4 * (batch * in_channels * size**2 + parameters + outputs))

# %% 1.2 wrong: np.choose picks the label's logit -> ValueError: Need at least 0 and at most 64 array objects
def cross_entropy(logits: np.ndarray, labels: np.ndarray) -> float:
    shifted = logits - logits.max(axis=1, keepdims=True)
    of_the_labels = np.choose(labels, shifted.T)
    return float(np.mean(np.log(np.exp(shifted).sum(axis=1)) - of_the_labels))
