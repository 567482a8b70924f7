// Damages an image at random, again and again, and makes every call of the library on it:
// fuzz IMAGE SECONDS SEED FILE. The number of the damage under way stands in FILE, so that one which
// ends the program, or takes longer than 30 seconds, can be made again: SEED is that number.

#define _XOPEN_SOURCE 700

#include <dentree.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// Superblock, descriptors, bitmaps, inodes, the journal's beginning and the first directories.
enum { PART = 2 << 20, MOST = 40 };

static uint64_t state;

static uint64_t random_below(uint64_t limit) {
    state += 0x9e3779b97f4a7c15;
    uint64_t mixed = (state ^ state >> 30) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
    return (mixed ^ mixed >> 31) % limit;
}

struct counts {
    unsigned long opened, found, read;
};

static void use(struct dentree_image *image, const char *path, struct counts *counts) {
    struct dentree_node *node;
    struct dentree_stat stat;
    char text[5000];
    if (dentree_walk(image, path, 0, &node))
        return;
    counts->found++;
    dentree_stat(node, &stat);
    dentree_readlink(node, text, sizeof text);
    dentree_getxattr(node, "user.one", text, sizeof text);
    for (uint64_t offset = 0; offset < 40 * sizeof text; offset += sizeof text) {
        int64_t len = dentree_read(node, offset, text, sizeof text);
        if (len <= 0)
            break;
        counts->read += len;
    }
    // A size that damage made, and an offset behind it.
    dentree_read(node, UINT64_MAX - 1, text, sizeof text);
    dentree_put(node);
}

struct below {
    struct dentree_image *image;
    struct counts *counts;
    unsigned long left;
};

static int visit(void *context, const struct dentree_entry *entry) {
    struct below *below = context;
    char path[8000];
    if (!below->left--)
        return -1;
    snprintf(path, sizeof path, "/%s", entry->path);
    use(below->image, path, below->counts);
    return 0;
}

static void try(const char *file, struct counts *counts) {
    struct dentree_image *image;
    struct dentree_node *root;
    if (dentree_open(file, 0, &image)) {
        if (!strlen(dentree_message()))
            abort();
        return;
    }
    counts->opened++;
    struct below below = {image, counts, 2000};
    if (!dentree_walk(image, "/", 1, &root)) {
        dentree_readdir(root, visit, &below);
        dentree_find(root, visit, &below);
        dentree_put(root);
    }
    dentree_close(image);
}

int main(int argc, char **argv) {
    static unsigned char whole[PART];
    struct counts counts = {0, 0, 0};
    unsigned long images = 0;
    if (argc < 5)
        return 2;
    int image = open(argv[1], O_RDWR), under_way = open(argv[4], O_RDWR | O_CREAT, 0644);
    uint64_t seed = strtoull(argv[3], NULL, 10);
    time_t end = time(NULL) + atoi(argv[2]);
    if (image < 0 || under_way < 0 || pread(image, whole, PART, 0) != PART)
        return 2;
    do {
        char number[32];
        size_t places[MOST];
        int len = snprintf(number, sizeof number, "%020llu\n", (unsigned long long)seed);
        if (pwrite(under_way, number, len, 0) != len)
            return 2;
        state = seed++;
        size_t count = 1 + random_below(MOST);
        for (size_t i = 0; i < count; i++) {
            // Half of it near the beginning, where the most is decided.
            places[i] = random_below(random_below(2) ? 64 << 10 : PART);
            unsigned char value = random_below(256);
            if (pwrite(image, &value, 1, places[i]) != 1)
                return 2;
        }
        alarm(30);
        try(argv[1], &counts);
        alarm(0);
        for (size_t i = 0; i < count; i++)
            if (pwrite(image, &whole[places[i]], 1, places[i]) != 1)
                return 2;
        images++;
    } while (time(NULL) < end);
    printf("%lu images, %lu opened, %lu paths, %lu bytes\n", images, counts.opened, counts.found, counts.read);
    return counts.opened && counts.read ? 0 : 3;
}
