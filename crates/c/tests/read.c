// What a user of libdentree writes: read IMAGE list|find|cat|link|xattr PATH [NAME].

#include <dentree.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int print(void *context, const struct dentree_entry *entry) {
    const char *until = context;
    if (until && !strcmp(entry->path, until))
        return -ECANCELED;
    if (!entry->stat) {
        printf("%s %c\n", entry->path, entry->kind);
        return 0;
    }
    printf("%s %c %o %llu %lld\n", entry->path, entry->kind, entry->stat->mode & 07777,
           (unsigned long long)entry->stat->size, (long long)entry->stat->mtime);
    return strcmp(entry->path, "pruned") ? 0 : 1;
}

static int copy(const struct dentree_node *node) {
    char piece[3000];
    uint64_t offset = 0;
    int64_t len;
    while ((len = dentree_read(node, offset, piece, sizeof piece)) > 0) {
        fwrite(piece, 1, len, stdout);
        offset += len;
    }
    return len;
}

static int put_out(int64_t len, const char *text, size_t room) {
    if (len >= 0)
        printf("%.*s\n", (int)(len < (int64_t)room ? len : (int64_t)room), text);
    return len < 0 ? len : 0;
}

int main(int argc, char **argv) {
    struct dentree_image *image = NULL;
    struct dentree_node *node = NULL;
    char text[64];
    if (argc < 4)
        return 2;
    const char *task = argv[2], *more = argc > 4 ? argv[4] : NULL;
    int result = dentree_open(argv[1], 0, &image);
    if (!result)
        result = dentree_walk(image, argv[3], strcmp(task, "link"), &node);
    if (result)
        ;
    else if (!strcmp(task, "list"))
        result = dentree_readdir(node, print, (void *)more);
    else if (!strcmp(task, "find"))
        result = dentree_find(node, print, (void *)more);
    else if (!strcmp(task, "cat"))
        result = copy(node);
    else if (!strcmp(task, "link"))
        result = put_out(dentree_readlink(node, text, sizeof text), text, sizeof text);
    else if (!strcmp(task, "xattr"))
        result = put_out(dentree_getxattr(node, more, text, sizeof text), text, sizeof text);
    if (result < 0 && result != -ECANCELED)
        fprintf(stderr, "%s: %s\n", strerror(-result), dentree_message());
    dentree_put(node);
    dentree_close(image);
    return result ? 1 : 0;
}
