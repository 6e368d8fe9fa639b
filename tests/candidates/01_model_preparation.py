# %% 1.1 wrong: divides by the column sums -> rows are labels
def per_class_recall(confusion):
    with np.errstate(invalid="ignore"):
        return np.diag(confusion) / confusion.sum(axis=0)

# %% 1.1 wrong: divides by the number of all images -> one for each row
def per_class_recall(confusion):
    return np.diag(confusion) / confusion.sum()

# %% 1.1 wrong: a class without images gets 0 -> its recall is not 0 but unknown, NaN
def per_class_recall(confusion):
    return np.diag(confusion) / np.maximum(confusion.sum(axis=1), 1)

# %% 1.1 wrong: a class that is never predicted gets NaN -> a class that is never predicted has recall 0
def per_class_recall(confusion):
    rows = confusion.sum(axis=1)
    recall = np.diag(confusion) / np.where(rows == 0, np.nan, rows)
    return np.where(confusion.sum(axis=0) == 0, np.nan, recall)

# %% 1.1 wrong: keepdims, so that every pair is divided -> keepdims makes the sums a column
def per_class_recall(confusion):
    with np.errstate(invalid="ignore"):
        return np.diag(confusion) / confusion.sum(axis=1, keepdims=True)

# %% 1.1 wrong: the whole matrix is divided -> take its diagonal
def per_class_recall(confusion):
    with np.errstate(invalid="ignore"):
        return confusion / confusion.sum(axis=1, keepdims=True)

# %% 1.1 wrong: the largest number of each row -> need not be the one on the diagonal
def per_class_recall(confusion):
    with np.errstate(invalid="ignore"):
        return confusion.max(axis=1) / confusion.sum(axis=1)

# %% 1.1 wrong: per cent -> not per cent
def per_class_recall(confusion):
    with np.errstate(invalid="ignore"):
        return 100 * np.diag(confusion) / confusion.sum(axis=1)

# %% 1.1 wrong: float32 -> float64 values
def per_class_recall(confusion):
    with np.errstate(invalid="ignore"):
        return (np.diag(confusion) / confusion.sum(axis=1)).astype("float32")

# %% 1.1 wrong: nothing is returned -> the return statement
def per_class_recall(confusion):
    with np.errstate(invalid="ignore"):
        np.diag(confusion) / confusion.sum(axis=1)

# %% 1.1 right: with a loop
def per_class_recall(confusion):
    recall = []
    for i in range(10):
        images = confusion[i].sum()
        recall.append(confusion[i, i] / images if images else float("nan"))
    return np.array(recall)

# %% 1.1 right: np.divide where there are images
def per_class_recall(confusion):
    rows = confusion.sum(axis=1)
    return np.divide(confusion.diagonal(), rows, out=np.full(10, np.nan), where=rows > 0)

# %% 1.1 right: the warning of 0 / 0 is not silenced
def per_class_recall(confusion):
    return np.diag(confusion) / confusion.sum(axis=1)

# %% 1.2 wrong: softmax and logarithm as written -> exp(1000) is inf
def cross_entropy(logits, labels):
    exponentials = np.exp(logits.astype(np.float64))
    p = exponentials / exponentials.sum(axis=1, keepdims=True)
    return -np.log(p[np.arange(len(labels)), labels]).mean()

# %% 1.2 wrong: shifted softmax, then the logarithm -> the probability has become 0
def cross_entropy(logits, labels):
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    p = exponentials / exponentials.sum(axis=1, keepdims=True)
    return -np.log(p[np.arange(len(labels)), labels]).mean()

# %% 1.2 wrong: an epsilon against log(0) -> caps the loss
def cross_entropy(logits, labels):
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    p = exponentials / exponentials.sum(axis=1, keepdims=True)
    return -np.log(p[np.arange(len(labels)), labels] + 1e-12).mean()

# %% 1.2 wrong: the maximum of the whole batch -> has to be each row's own
def cross_entropy(logits, labels):
    shifted = logits - logits.max()
    log_sums = np.log(np.exp(shifted).sum(axis=1))
    return (log_sums - shifted[np.arange(len(labels)), labels]).mean()

# %% 1.2 wrong: the sum over the images -> the mean over the images, not their sum
def cross_entropy(logits, labels):
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_sums = np.log(np.exp(shifted).sum(axis=1))
    return (log_sums - shifted[np.arange(len(labels)), labels]).sum()

# %% 1.2 wrong: no mean -> the mean over the images is left out
def cross_entropy(logits, labels):
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_sums = np.log(np.exp(shifted).sum(axis=1))
    return log_sums - shifted[np.arange(len(labels)), labels]

# %% 1.2 wrong: every label in every row -> takes every label in every row
def cross_entropy(logits, labels):
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_sums = np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return (log_sums - shifted[:, labels]).mean()

# %% 1.2 wrong: the sign -> minus the logarithm
def cross_entropy(logits, labels):
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_sums = np.log(np.exp(shifted).sum(axis=1))
    return (shifted[np.arange(len(labels)), labels] - log_sums).mean()

# %% 1.2 wrong: the logarithm is left out -> this is what F.nll_loss made of probabilities
def cross_entropy(logits, labels):
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    p = exponentials / exponentials.sum(axis=1, keepdims=True)
    return -p[np.arange(len(labels)), labels].mean()

# %% 1.2 wrong: the mean over all elements of a one-hot product -> not over all n * c logits
def cross_entropy(logits, labels):
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return -(log_p * np.eye(logits.shape[1])[labels]).mean()

# %% 1.2 wrong: the softmax over the batch -> the softmax runs over the classes, axis 1
def cross_entropy(logits, labels):
    shifted = logits - logits.max(axis=0, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=0, keepdims=True))
    return -log_p[np.arange(len(labels)), labels].mean()

# %% 1.2 wrong: ten classes written in -> could not be broadcast
def cross_entropy(logits, labels):
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return -(log_p * np.eye(10)[labels]).sum(axis=1).mean()

# %% 1.2 wrong: nothing is returned -> the return statement
def cross_entropy(logits, labels):
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_sums = np.log(np.exp(shifted).sum(axis=1))
    (log_sums - shifted[np.arange(len(labels)), labels]).mean()

# %% 1.2 right: logaddexp
def cross_entropy(logits, labels):
    log_sums = np.logaddexp.reduce(logits, axis=1)
    return np.mean(log_sums - logits[np.arange(len(labels)), labels])

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

# %% 1.3 wrong: no padding in the output's size -> the padding is left out
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size - kernel) // stride + 1
    parameters = out_channels * (in_channels * kernel**2 + 1)
    outputs = batch * out_channels * side**2
    moved = batch * in_channels * size**2 + parameters + outputs
    return parameters, 2 * in_channels * kernel**2 * outputs, 4 * moved

# %% 1.3 wrong: padding on one side only -> both sides of the image
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + padding - kernel) // stride + 1
    parameters = out_channels * (in_channels * kernel**2 + 1)
    outputs = batch * out_channels * side**2
    moved = batch * in_channels * size**2 + parameters + outputs
    return parameters, 2 * in_channels * kernel**2 * outputs, 4 * moved

# %% 1.3 wrong: the output's size is rounded up -> rounded down
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = -(-(size + 2 * padding - kernel) // stride) + 1
    parameters = out_channels * (in_channels * kernel**2 + 1)
    outputs = batch * out_channels * side**2
    moved = batch * in_channels * size**2 + parameters + outputs
    return parameters, 2 * in_channels * kernel**2 * outputs, 4 * moved

# %% 1.3 wrong: no + 1 in the output's size -> first place counts too
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride
    parameters = out_channels * (in_channels * kernel**2 + 1)
    outputs = batch * out_channels * side**2
    moved = batch * in_channels * size**2 + parameters + outputs
    return parameters, 2 * in_channels * kernel**2 * outputs, 4 * moved

# %% 1.3 wrong: the stride is not used -> the stride is left out
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = size + 2 * padding - kernel + 1
    parameters = out_channels * (in_channels * kernel**2 + 1)
    outputs = batch * out_channels * side**2
    moved = batch * in_channels * size**2 + parameters + outputs
    return parameters, 2 * in_channels * kernel**2 * outputs, 4 * moved

# %% 1.3 wrong: no bias in the parameters -> the bias is left out
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    parameters = out_channels * in_channels * kernel**2
    outputs = batch * out_channels * side**2
    moved = batch * in_channels * size**2 + parameters + outputs
    return parameters, 2 * in_channels * kernel**2 * outputs, 4 * moved

# %% 1.3 wrong: multiply-adds instead of FLOPs -> are two FLOPs
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    parameters = out_channels * (in_channels * kernel**2 + 1)
    outputs = batch * out_channels * side**2
    moved = batch * in_channels * size**2 + parameters + outputs
    return parameters, in_channels * kernel**2 * outputs, 4 * moved

# %% 1.3 wrong: 2K - 1 FLOPs -> the addition of the bias is left out
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    parameters = out_channels * (in_channels * kernel**2 + 1)
    outputs = batch * out_channels * side**2
    moved = batch * in_channels * size**2 + parameters + outputs
    return parameters, (2 * in_channels * kernel**2 - 1) * outputs, 4 * moved

# %% 1.3 wrong: the input channels are not in K -> K counts the numbers of every input channel
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    parameters = out_channels * (in_channels * kernel**2 + 1)
    outputs = batch * out_channels * side**2
    moved = batch * in_channels * size**2 + parameters + outputs
    return parameters, 2 * kernel**2 * outputs, 4 * moved

# %% 1.3 wrong: the padded image is counted in the bytes -> the padding is not in memory
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    parameters = out_channels * (in_channels * kernel**2 + 1)
    outputs = batch * out_channels * side**2
    moved = batch * in_channels * (size + 2 * padding)**2 + parameters + outputs
    return parameters, 2 * in_channels * kernel**2 * outputs, 4 * moved

# %% 1.3 wrong: numbers instead of bytes -> a float32 has 4 bytes
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    parameters = out_channels * (in_channels * kernel**2 + 1)
    outputs = batch * out_channels * side**2
    moved = batch * in_channels * size**2 + parameters + outputs
    return parameters, 2 * in_channels * kernel**2 * outputs, moved

# %% 1.3 wrong: / instead of // -> / gives a float
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) / stride + 1
    parameters = out_channels * (in_channels * kernel**2 + 1)
    outputs = batch * out_channels * side**2
    moved = batch * in_channels * size**2 + parameters + outputs
    return parameters, 2 * in_channels * kernel**2 * outputs, 4 * moved

# %% 1.3 wrong: FLOPs come first -> the order of the three
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    parameters = out_channels * (in_channels * kernel**2 + 1)
    outputs = batch * out_channels * side**2
    moved = batch * in_channels * size**2 + parameters + outputs
    return 2 * in_channels * kernel**2 * outputs, parameters, 4 * moved

# %% 1.3 right: counts the places of the window, and takes the sizes from PyTorch's layer
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    layer = nn.Conv2d(in_channels, out_channels, kernel, stride, padding)
    places = len(range(0, size + 2 * padding - kernel + 1, stride))
    parameters = layer.weight.numel() + layer.bias.numel()
    outputs = batch * out_channels * places * places
    flops = outputs * (in_channels * kernel * kernel) + outputs * (in_channels * kernel * kernel)
    return parameters, flops, 4 * (batch * in_channels * size * size + parameters + outputs)

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

# %% 1.1 wrong: 0 where a class is neither there nor predicted -> NaN
def per_class_recall(confusion):
    with np.errstate(all="ignore"):
        recall = np.diag(confusion) / confusion.sum(axis=1)
    recall[confusion.sum(axis=0) == 0] = 0
    return recall
