/* All that a compiled CNN needs besides itself: no TVM, and in a browser no C library either.
 *
 * layout.h, which ship/kernel.py writes, says which tensors the kernel takes:
 * TENSORS, NUMBERS (of all weights together), and the tables AXES and SHAPES. */
#include <stddef.h>
#include <stdint.h>
#include "layout.h"

/* What the kernel takes: the tensor struct of DLPack, and TVM's values of 16 bytes. */
typedef struct { int32_t type, id; } DLDevice;
typedef struct { uint8_t code, bits; uint16_t lanes; } DLDataType;
typedef struct {
    void *data;
    DLDevice device;
    int32_t axes;
    DLDataType kind;
    int64_t *shape, *strides;
    uint64_t first;
} DLTensor;
typedef struct { int32_t type, zero; union { int64_t number; DLTensor *tensor; } is; } Value;
int __tvm_ffi_cnn(void *self, Value *given, int32_t count, Value *result);

/* What the kernel calls: memory for its intermediate results, taken and given back as a stack. */
static _Alignas(64) char room[1 << 20];
static size_t used;

static void *take(int32_t type, int32_t id, uint64_t size, int32_t code, int32_t bits)
{
    size_t start = (used + 63) & ~(size_t)63;
    if (start + size > sizeof room) return NULL;
    used = start + size;
    return room + start;
}

static int32_t give_back(int32_t type, int32_t id, void *start)
{
    used = (size_t)((char *)start - room);
    return 0;
}

/* It calls them through two variables, which TVM's runtime would fill when it loads a library. */
void *(*__TVMBackendAllocWorkspace)(int32_t, int32_t, uint64_t, int32_t, int32_t) = take;
int32_t (*__TVMBackendFreeWorkspace)(int32_t, int32_t, void *) = give_back;

/* It refuses what has another kind or shape than it was made for, and says why by this. */
static const char *why = "";
void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count)
{
    why = count > 0 ? parts[count - 1] : kind;
}

#ifdef __wasm__
float expf(float x) /* e^x = 2^n e^r with |r| <= ln(2)/2, and six terms of the series for e^r */
{
    if (x < -87) return 0;
    float n = __builtin_floorf(x * 1.44269504f + .5f), r = x - n * .693359375f + n * 2.1219444e-4f;
    float series = 1 + r * (1 + r / 2 * (1 + r / 3 * (1 + r / 4 * (1 + r / 5 * (1 + r / 6)))));
    union { int32_t bits; float number; } power = {((int32_t)n + 127) << 23};
    return series * power.number;
}
#endif

static int64_t shapes[] = SHAPES;
static const int32_t axes[TENSORS] = AXES;
static _Alignas(64) float image[784], weights[NUMBERS], probabilities[10];

float *image_at(void) { return image; }
float *weights_at(void) { return weights; }
float *probabilities_at(void) { return probabilities; }
int numbers(void) { return NUMBERS; }
const char *reason(void) { return why; }

int run(void) /* image and weights are there: fill probabilities; not 0 if the kernel refuses */
{
    DLTensor tensors[TENSORS];
    Value given[TENSORS], result = {0};
    int64_t *shape = shapes;
    float *weight = weights;
    for (int i = 0; i < TENSORS; ++i) {
        tensors[i] = (DLTensor){weight, {1, 0}, axes[i], {2, 32, 1}, shape, NULL, 0};
        given[i] = (Value){7, 0, {.tensor = &tensors[i]}};
        size_t size = 1;
        for (int axis = 0; axis < axes[i]; ++axis) size *= (size_t)*shape++;
        if (i > 0 && i < TENSORS - 1) weight += size;
    }
    tensors[0].data = image;
    tensors[TENSORS - 1].data = probabilities;
    return __tvm_ffi_cnn(NULL, given, TENSORS, &result);
}
