/* Classifies images with the CNN: main weights.bin images.bin probabilities.bin
 *
 * All three files are float32 numbers and nothing else: the packed weights, 784 for each image,
 * and 10 for each image, which are written. */
#include <stdio.h>
#include <time.h>

float *image_at(void), *weights_at(void), *probabilities_at(void);
int numbers(void), run(void);
const char *reason(void);

static int failed(const char *what, const char *which)
{
    fprintf(stderr, "%s: %s\n", which, what);
    return 1;
}

int main(int count, char **words)
{
    if (count != 4) return failed("WEIGHTS IMAGES PROBABILITIES", words[0]);
    FILE *weights = fopen(words[1], "rb"), *images = fopen(words[2], "rb");
    if (!weights || !images) return failed("cannot be read", words[weights ? 2 : 1]);
    size_t found = fread(weights_at(), sizeof(float), (size_t)numbers(), weights);
    if (found != (size_t)numbers() || fgetc(weights) != EOF)
        return failed("not the numbers of this model", words[1]);
    FILE *probabilities = fopen(words[3], "wb");
    if (!probabilities) return failed("cannot be written", words[3]);

    int done = 0;
    clock_t start = clock();
    while (fread(image_at(), sizeof(float), 784, images) == 784) {
        if (run()) return failed(reason(), "the kernel");
        if (fwrite(probabilities_at(), sizeof(float), 10, probabilities) != 10)
            return failed("is full", words[3]);
        ++done;
    }
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    fprintf(stderr, "%d images, %.1f us each\n", done, done ? seconds * 1e6 / done : 0);
    return fclose(probabilities) ? failed("is full", words[3]) : 0;
}
