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

# %% 1.1 wrong: float32 -> float32 [nan, nan]
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

# %% 1.1 wrong: 0 where a class is neither there nor predicted -> [0, 0]
def per_class_recall(confusion):
    with np.errstate(all="ignore"):
        recall = np.diag(confusion) / confusion.sum(axis=1)
    recall[confusion.sum(axis=0) == 0] = 0
    return recall


# %% more

# %% 1.1 wrong: one divided by the recall -> one divided by the recall
def per_class_recall(confusion):
    with np.errstate(all="ignore"):
        return confusion.sum(axis=1) / np.diag(confusion)

# %% 1.1 wrong: the share that is missed -> 1 - recall
def per_class_recall(confusion):
    with np.errstate(all="ignore"):
        return 1 - np.diag(confusion) / confusion.sum(axis=1)

# %% 1.1 wrong: without the diagonal below -> the row's sum without the diagonal
def per_class_recall(confusion):
    with np.errstate(all="ignore"):
        return np.diag(confusion) / (confusion.sum(axis=1) - np.diag(confusion))

# %% 1.1 wrong: row and column -> the sum of the row and of the column
def per_class_recall(confusion):
    with np.errstate(all="ignore"):
        return np.diag(confusion) / (confusion.sum(axis=1) + confusion.sum(axis=0))

# %% 1.1 wrong: the F1 score -> this is the F1 score
def per_class_recall(confusion):
    with np.errstate(all="ignore"):
        return 2 * np.diag(confusion) / (confusion.sum(axis=1) + confusion.sum(axis=0))

# %% 1.1 wrong: rounded down -> // rounds down
def per_class_recall(confusion):
    with np.errstate(all="ignore"):
        return np.float64(np.diag(confusion) // confusion.sum(axis=1))

# %% 1.1 wrong: the last class is left out -> [nan], shape (1,)
def per_class_recall(confusion):
    with np.errstate(all="ignore"):
        return (np.diag(confusion) / confusion.sum(axis=1))[:-1]

# %% 1.1 wrong: the first class is left out -> [nan], shape (1,)
def per_class_recall(confusion):
    with np.errstate(all="ignore"):
        return (np.diag(confusion) / confusion.sum(axis=1))[1:]

# %% 1.1 wrong: the last class is 0 -> [nan, nan, nan, nan, nan, nan, nan, nan, nan, *0*]
def per_class_recall(confusion):
    with np.errstate(all="ignore"):
        recall = np.diag(confusion) / confusion.sum(axis=1)
        recall[9] = 0
        return recall

# %% 1.1 wrong: the other diagonal -> [*0*, nan]
def per_class_recall(confusion):
    with np.errstate(all="ignore"):
        return np.diag(np.fliplr(confusion)) / confusion.sum(axis=1)

# %% 1.1 wrong: reversed -> the classes are in reversed order
def per_class_recall(confusion):
    with np.errstate(all="ignore"):
        return (np.diag(confusion) / confusion.sum(axis=1))[::-1]

# %% 1.1 wrong: the mean of all -> an array of ten numbers
def per_class_recall(confusion):
    with np.errstate(all="ignore"):
        return np.nanmean(np.diag(confusion) / confusion.sum(axis=1))

# %% 1.1 wrong: a list -> an array of ten numbers
def per_class_recall(confusion):
    with np.errstate(all="ignore"):
        return list(np.diag(confusion) / confusion.sum(axis=1))

# %% 1.1 wrong: 1 added against 0 / 0 -> [0, 0]
def per_class_recall(confusion):
    with np.errstate(all="ignore"):
        return np.diag(confusion) / (confusion.sum(axis=1) + 1)

# %% 1.1 wrong: NaN becomes 1 -> [1, 1]
def per_class_recall(confusion):
    with np.errstate(all="ignore"):
        return np.nan_to_num(np.diag(confusion) / confusion.sum(axis=1), nan=1.0)

# %% 1.1 wrong: the transposed matrix -> the column sums give the precision
def per_class_recall(confusion):
    with np.errstate(all="ignore"):
        return np.diag(confusion.T) / confusion.T.sum(axis=1)

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

# %% 1.2 wrong: a str -> one number, the mean loss
def cross_entropy(logits, labels):
    z = logits - logits.max(axis=1, keepdims=True)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return str(losses.mean())

# %% 1.2 wrong: a rounded str -> a str, '
def cross_entropy(logits, labels):
    z = logits - logits.max(axis=1, keepdims=True)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return f"{losses.mean():.3f}"

# %% 1.2 wrong: a tuple -> a tuple
def cross_entropy(logits, labels):
    z = logits - logits.max(axis=1, keepdims=True)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return losses.mean(), losses

# %% 1.2 wrong: a list -> a list
def cross_entropy(logits, labels):
    z = logits - logits.max(axis=1, keepdims=True)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return [losses.mean()]

# %% 1.2 wrong: True -> a bool
def cross_entropy(logits, labels):
    z = logits - logits.max(axis=1, keepdims=True)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return losses.mean() > 0

# %% 1.2 wrong: an array of one number -> [0.6931], shape (1,)
def cross_entropy(logits, labels):
    z = logits - logits.max(axis=1, keepdims=True)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return losses.mean(keepdims=True)

# %% 1.2 wrong: rounded to three digits -> rounded to 3 digits
def cross_entropy(logits, labels):
    z = logits - logits.max(axis=1, keepdims=True)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return round(float(losses.mean()), 3)

# %% 1.2 wrong: an integer -> rounded to 0 digits
def cross_entropy(logits, labels):
    z = logits - logits.max(axis=1, keepdims=True)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return int(round(float(losses.mean())))

# %% 1.2 wrong: shifted by the label's own logit -> the label's own logit is subtracted
def cross_entropy(logits, labels):
    z = logits - logits[np.arange(len(labels)), labels][:, None]
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return losses.mean()

# %% 1.2 wrong: shifted by the row's mean -> the row's mean is subtracted
def cross_entropy(logits, labels):
    z = logits - logits.mean(axis=1, keepdims=True)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return losses.mean()

# %% 1.2 wrong: shifted by the row's smallest -> the row's smallest logit is subtracted
def cross_entropy(logits, labels):
    z = logits - logits.min(axis=1, keepdims=True)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return losses.mean()

# %% 1.2 wrong: shifted by the first logit -> the row's first logit is subtracted
def cross_entropy(logits, labels):
    z = logits - logits[:, :1]
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return losses.mean()

# %% 1.2 wrong: shifted by each column's largest -> each column's largest logit
def cross_entropy(logits, labels):
    z = logits - logits.max(axis=0)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return losses.mean()

# %% 1.2 wrong: not shifted, the logarithm apart -> exp(1000) is inf
def cross_entropy(logits, labels):
    z = logits - 0
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return losses.mean()

# %% 1.2 wrong: not shifted, in float64 -> exp(1000) is inf
def cross_entropy(logits, labels):
    z = logits - np.float64(0)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return losses.mean()

# %% 1.2 wrong: the largest is added -> the largest logit is subtracted, not added
def cross_entropy(logits, labels):
    z = logits - -logits.max(axis=1, keepdims=True)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return losses.mean()

# %% 1.2 wrong: the median -> this is the median
def cross_entropy(logits, labels):
    z = logits - logits.max(axis=1, keepdims=True)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return np.median(losses)

# %% 1.2 wrong: the largest loss -> this is the largest loss
def cross_entropy(logits, labels):
    z = logits - logits.max(axis=1, keepdims=True)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return losses.max()

# %% 1.2 wrong: the first loss -> the loss of the first image alone
def cross_entropy(logits, labels):
    z = logits - logits.max(axis=1, keepdims=True)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return losses[0]

# %% 1.2 wrong: divided by n - 1 -> it divides by n - 1
def cross_entropy(logits, labels):
    z = logits - logits.max(axis=1, keepdims=True)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return losses.sum() / (len(labels) - 1)

# %% 1.2 wrong: divided by the classes too -> not over all n * c logits
def cross_entropy(logits, labels):
    z = logits - logits.max(axis=1, keepdims=True)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return losses.mean() / logits.shape[1]

# %% 1.2 wrong: base 2 -> not to base 2
def cross_entropy(logits, labels):
    z = logits - logits.max(axis=1, keepdims=True)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return losses.mean() / np.log(2)

# %% 1.2 wrong: base 10 -> not to base 10
def cross_entropy(logits, labels):
    z = logits - logits.max(axis=1, keepdims=True)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return losses.mean() / np.log(10)

# %% 1.2 wrong: the label's logit left out -> the logit of the likeliest class
def cross_entropy(logits, labels):
    z = logits - logits.max(axis=1, keepdims=True)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return np.log(np.exp(z).sum(axis=1)).mean()

# %% 1.2 wrong: the labels unused -> the logit of the likeliest class
def cross_entropy(logits, labels):
    z = logits - logits.max(axis=1, keepdims=True)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return (np.log(np.exp(z).sum(axis=1)) - z.max(axis=1)).mean()

# %% 1.2 wrong: the next label -> labels begin at 0
def cross_entropy(logits, labels):
    labels = labels + 1
    z = logits - logits.max(axis=1, keepdims=True)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return losses.mean()

# %% 1.2 wrong: the label before -> labels begin at 0
def cross_entropy(logits, labels):
    labels = labels - 1
    z = logits - logits.max(axis=1, keepdims=True)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return losses.mean()

# %% 1.2 wrong: the largest is not subtracted from the label's logit -> and not from the label's logit
def cross_entropy(logits, labels):
    z = logits - logits.max(axis=1, keepdims=True)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return (np.log(np.exp(z).sum(axis=1)) - logits[i, labels]).mean()

# %% 1.2 wrong: the largest is not subtracted in the sum -> and not in the sum of exponentials
def cross_entropy(logits, labels):
    z = logits - logits.max(axis=1, keepdims=True)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return (np.log(np.exp(logits).sum(axis=1)) - z[i, labels]).mean()

# %% 1.2 wrong: clipped probabilities -> caps the loss
def cross_entropy(logits, labels):
    z = logits - logits.max(axis=1, keepdims=True)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return -np.log(np.clip(np.exp(-losses), 1e-12, 1)).mean()

# %% 1.2 wrong: the last image is left out -> 0.3133
def cross_entropy(logits, labels):
    z = logits - logits.max(axis=1, keepdims=True)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return losses[:-1].mean() if len(losses) > 1 else losses.mean()

# %% 1.2 right: np.average, int labels, a NumPy scalar
def cross_entropy(logits, labels):
    z = logits - logits.max(axis=1, keepdims=True)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return np.average(losses)

# %% 1.2 right: shifted by a number near the largest
def cross_entropy(logits, labels):
    z = logits - (logits.max(axis=1, keepdims=True) - 5)
    i = np.arange(len(labels))
    losses = np.log(np.exp(z).sum(axis=1)) - z[i, labels]
    return losses.mean()

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

# %% 1.3 wrong: + 1 before the division -> + 1 comes after the division
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel + 1) // stride
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o
    m = 4 * (batch * in_channels * size**2 + p + o)
    return p, f, m

# %% 1.3 wrong: + 1 in both places -> 1 is added once
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel + 1) // stride + 1
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o
    m = 4 * (batch * in_channels * size**2 + p + o)
    return p, f, m

# %% 1.3 wrong: - 1 -> 1 is added, not subtracted
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride - 1
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o
    m = 4 * (batch * in_channels * size**2 + p + o)
    return p, f, m

# %% 1.3 wrong: the padding is subtracted -> the padding is added, not subtracted
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size - 2 * padding - kernel) // stride + 1
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o
    m = 4 * (batch * in_channels * size**2 + p + o)
    return p, f, m

# %% 1.3 wrong: the kernel is left out -> the kernel is subtracted
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding) // stride + 1
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o
    m = 4 * (batch * in_channels * size**2 + p + o)
    return p, f, m

# %% 1.3 wrong: the kernel outside the division -> the whole sum is divided by the stride
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding) // stride - kernel + 1
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o
    m = 4 * (batch * in_channels * size**2 + p + o)
    return p, f, m

# %% 1.3 wrong: the output as large as the input -> as large as the input
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = size
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o
    m = 4 * (batch * in_channels * size**2 + p + o)
    return p, f, m

# %% 1.3 wrong: rounded to the nearest -> not to the nearest number
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = round((size + 2 * padding - kernel) / stride) + 1
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o
    m = 4 * (batch * in_channels * size**2 + p + o)
    return p, f, m

# %% 1.3 wrong: bias by input channels -> not for each input channel
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    p = out_channels * in_channels * kernel**2 + in_channels
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o
    m = 4 * (batch * in_channels * size**2 + p + o)
    return p, f, m

# %% 1.3 wrong: one bias -> not a single one
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    p = out_channels * in_channels * kernel**2 + 1
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o
    m = 4 * (batch * in_channels * size**2 + p + o)
    return p, f, m

# %% 1.3 wrong: parameters for each image -> for each image of the batch
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    p = batch * out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o
    m = 4 * (batch * in_channels * size**2 + p + o)
    return p, f, m

# %% 1.3 wrong: channels exchanged -> not for each input channel
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    p = in_channels * (out_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o
    m = 4 * (batch * in_channels * size**2 + p + o)
    return p, f, m

# %% 1.3 wrong: kernel not squared -> kernel * kernel numbers
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    p = out_channels * (in_channels * kernel + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o
    m = 4 * (batch * in_channels * size**2 + p + o)
    return p, f, m

# %% 1.3 wrong: FLOPs of one image -> every image of the batch
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o // batch
    m = 4 * (batch * in_channels * size**2 + p + o)
    return p, f, m

# %% 1.3 wrong: FLOPs of one output channel -> every output channel has its own products
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o // out_channels
    m = 4 * (batch * in_channels * size**2 + p + o)
    return p, f, m

# %% 1.3 wrong: 2K + 1 -> the bias is one more: 2K
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = (2 * in_channels * kernel**2 + 1) * o
    m = 4 * (batch * in_channels * size**2 + p + o)
    return p, f, m

# %% 1.3 wrong: FLOPs with the kernel not squared -> kernel * kernel numbers
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel * o
    m = 4 * (batch * in_channels * size**2 + p + o)
    return p, f, m

# %% 1.3 wrong: FLOPs at every place of the input -> as large as the input
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * batch * out_channels * size**2
    m = 4 * (batch * in_channels * size**2 + p + o)
    return p, f, m

# %% 1.3 wrong: float64 bytes -> not 8
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o
    m = 8 * (batch * in_channels * size**2 + p + o)
    return p, f, m

# %% 1.3 wrong: no input -> the input is left out
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o
    m = 4 * (p + o)
    return p, f, m

# %% 1.3 wrong: no output -> the output is left out
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o
    m = 4 * (batch * in_channels * size**2 + p)
    return p, f, m

# %% 1.3 wrong: no parameters -> the parameters are left out
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o
    m = 4 * (batch * in_channels * size**2 + o)
    return p, f, m

# %% 1.3 wrong: no bias in the bytes -> the bias is left out: it is read too
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o
    m = 4 * (batch * in_channels * size**2 + p - out_channels + o)
    return p, f, m

# %% 1.3 wrong: the input of one image -> the input has a batch of images
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o
    m = 4 * (in_channels * size**2 + p + o)
    return p, f, m

# %% 1.3 wrong: one input channel -> the input has in_channels channels
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o
    m = 4 * (batch * size**2 + p + o)
    return p, f, m

# %% 1.3 wrong: the output of one image -> the output has a batch of images
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o
    m = 4 * (batch * in_channels * size**2 + p + o // batch)
    return p, f, m

# %% 1.3 wrong: 4 bytes for the input only -> 4 bytes for each number
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o
    m = 4 * batch * in_channels * size**2 + p + o
    return p, f, m

# %% 1.3 wrong: the output twice -> every number counts once
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o
    m = 4 * (batch * in_channels * size**2 + p + 2 * o)
    return p, f, m

# %% 1.3 wrong: two numbers -> a tuple of three ints
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o
    m = 4 * (batch * in_channels * size**2 + p + o)
    return p, f

# %% 1.3 wrong: a dict -> a tuple of three ints
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o
    m = 4 * (batch * in_channels * size**2 + p + o)
    return {'parameters': p, 'flops': f, 'bytes': m}

# %% 1.3 wrong: nothing -> a tuple of three ints
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o
    m = 4 * (batch * in_channels * size**2 + p + o)
    return None

# %% 1.3 wrong: bytes before FLOPs -> the order of the three
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o
    m = 4 * (batch * in_channels * size**2 + p + o)
    return p, m, f

# %% 1.3 wrong: floats -> an int for parameters
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = (size + 2 * padding - kernel) // stride + 1
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o
    m = 4 * (batch * in_channels * size**2 + p + o)
    return float(p), float(f), float(m)

# %% 1.3 right: divmod and sums
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = divmod(size - kernel + padding + padding, stride)[0] + 1
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = sum([o * in_channels * kernel * kernel] * 2)
    m = 4 * (batch * in_channels * size**2 + p + o)
    return p, f, m

# %% 1.3 right: int of a quotient
def conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding):
    side = int((size + 2 * padding - kernel) / stride + 1)
    p = out_channels * (in_channels * kernel**2 + 1)
    o = batch * out_channels * side**2
    f = 2 * in_channels * kernel**2 * o
    m = 4 * (batch * in_channels * size**2 + p + o)
    return p, f, m

# %% 1.1 wrong: labels and predictions as parameters -> per_class_recall takes (labels, predictions)
def per_class_recall(labels, predictions):
    return np.array([np.mean(predictions[labels == c] == c) for c in range(10)])

# %% 1.3 wrong: channels exchanged in the signature -> conv2d_cost takes (batch, out_channels, in_channels, size
def conv2d_cost(batch, out_channels, in_channels, size, kernel, stride, padding):
    o = (size + 2 * padding - kernel) // stride + 1
    p = out_channels * (in_channels * kernel ** 2 + 1)
    return p, 2 * in_channels * kernel ** 2 * batch * out_channels * o * o, 4 * (p + batch * in_channels * size ** 2 + batch * out_channels * o * o)
