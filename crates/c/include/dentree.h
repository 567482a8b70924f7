// Reads ext2, ext3 and ext4 images, wherever they are. Link with -ldentree.
//
// Calls return 0 or a count, or a negative errno; dentree_message() then says what failed and why.
// Every call may be made by several threads at a time, on the same image, too.
//
// Made of the crate dentree-c by cbindgen; a test keeps them equal.

#ifndef DENTREE_H
#define DENTREE_H

#include <stddef.h>
#include <stdint.h>

// An image that is open.
struct dentree_image;

// A file, directory or symbolic link that a path led to.
struct dentree_node;

// What stat(2) tells, and more that ext4 has.
struct dentree_stat {
  uint64_t ino;
  // In bytes.
  uint64_t size;
  // Of 512 bytes.
  uint64_t blocks;
  // Type and permissions, as `st_mode`.
  uint32_t mode;
  uint32_t nlink;
  uint32_t uid;
  uint32_t gid;
  uint32_t rdev_major;
  uint32_t rdev_minor;
  // As lsattr(1) has them.
  uint32_t flags;
  // Tells inodes that had the same number one after another apart.
  uint32_t generation;
  // Seconds since 1970.
  int64_t atime;
  int64_t mtime;
  int64_t ctime;
  // Of creation; 0 where the inode is too small to have it.
  int64_t crtime;
  uint32_t atime_nsec;
  uint32_t mtime_nsec;
  uint32_t ctime_nsec;
  uint32_t crtime_nsec;
};

// A name. It is valid until the function that is called with it returns.
struct dentree_entry {
  // Of `dentree_readdir` the name, of `dentree_find` the path from the directory on. A zero is
  // behind it.
  const char *path;
  // Its length, without the zero.
  size_t path_len;
  uint64_t ino;
  // `f`, `d`, `l`, `c`, `b`, `p` or `s`, as find(1) has it with `-type`; 0 where the directory
  // does not say.
  char kind;
  // Of `dentree_find` the attributes, of `dentree_readdir` null.
  const struct dentree_stat *stat;
};

// Called for every name, with the pointer that the caller gave. 0: go on; positive: go on, and
// leave out what is below this directory; negative: end, and return this.
typedef int (*dentree_each)(void *context, const struct dentree_entry *entry);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Calls `each` for every name in a directory but `.` and `..`. Returns 0, a negative errno, or
// what `each` returned to end it. Of a damaged directory all names that can be read are given, and
// then the call fails with `-EUCLEAN`.
//
// # Safety
// `node` is valid, and `each` can be called with `context`.
int dentree_readdir(const struct dentree_node *node, dentree_each each, void *context);

// Calls `each` for everything below a directory, with its attributes, a directory before what is
// in it. Returns as `dentree_readdir` does; what is damaged is left out.
//
// # Safety
// `node` is valid, and `each` can be called with `context`.
int dentree_find(const struct dentree_node *node, dentree_each each, void *context);

// What the last failure of a call of this thread was: path or image, and reason. It is valid until
// the next failure in this thread, and empty before the first.
const char *dentree_message(void);

// Opens an image to be read: the path of a file or device, or an address (`https://`, `s3://`,
// `nbd://`, …). qcow2 images are recognised. `partition` is the number of one in its partition
// table, or 0 for what is there: the file system itself, or the only partition with one. A journal
// that was not replayed is replayed in memory; nothing is written.
//
// Returns 0, and an image for `dentree_close`; or a negative errno.
//
// # Safety
// `source` is a string, and `image` can be written.
int dentree_open(const char *source, uint32_t partition, struct dentree_image **image);

// Closes an image. Null is none. Its nodes stay valid until they are put.
//
// # Safety
// `image` came from `dentree_open`, and nothing uses it any more.
void dentree_close(struct dentree_image *image);

// Walks to a path from the image's root. `follow` not 0: a symbolic link at its end is followed,
// as stat(2) does; 0: it is what is found, as with lstat(2).
//
// Returns 0, and a node for `dentree_put`; or a negative errno.
//
// # Safety
// `image` is open, `path` a string, and `node` can be written.
int dentree_walk(const struct dentree_image *image,
                 const char *path,
                 int follow,
                 struct dentree_node **node);

// Gives a node back. Null is none.
//
// # Safety
// `node` came from `dentree_walk`, and nothing uses it any more.
void dentree_put(struct dentree_node *node);

// The attributes of a node. Returns 0 or a negative errno.
//
// # Safety
// `node` is valid, and `stat` can be written.
int dentree_stat(const struct dentree_node *node, struct dentree_stat *stat);

// Reads a regular file from byte `offset` on. Returns how many bytes were read, fewer than `len`
// only at the end, or a negative errno.
//
// # Safety
// `node` is valid, and `len` bytes at `buf` can be written.
int64_t dentree_read(const struct dentree_node *node, uint64_t offset, void *buf, size_t len);

// The target of a symbolic link, without a zero at its end. Returns its whole length, of which as
// much as fits is in `buf`, or a negative errno.
//
// # Safety
// `node` is valid, and `len` bytes at `buf` can be written.
int64_t dentree_readlink(const struct dentree_node *node, void *buf, size_t len);

// The value of an extended attribute, by its full name (`user.note`). Returns its whole length, of
// which as much as fits is in `buf`, or a negative errno: `-ENODATA` where there is none.
//
// # Safety
// `node` is valid, `name` a string, and `len` bytes at `buf` can be written.
int64_t dentree_getxattr(const struct dentree_node *node, const char *name, void *buf, size_t len);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DENTREE_H */
